// SPDX-License-Identifier: Apache-2.0
// Fills rows of sinusoids: fast where doubles decide a rounding, by ever more
// bits where they do not, so that every element is correctly rounded whatever
// instruction set or cut of the range it came from.
//
//   1. Anchors, one a block of rows, are double-doubles: the first by rotations
//      that SinCosOf gave, each next by rotating the last.
//   2. Kernels rotate an anchor, scaled, to the block's rows in plain doubles
//      and say which roundings those leave undecided. F64 output and output of
//      an extreme scale take double-double rotations instead.
//   3. An undecided element is computed by SinCosOf, at 2^-97.
//   4. What that leaves undecided goes to the rows' reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/encoding/encoding.h"
#include "core/encoding/sinusoid/sinusoid.h"
#include "core/kernel/kernel_set.h"
#include "core/tensor/data_type.h"
#include "core/tensor/positions.h"

namespace attnbias {

// An Encoding's evaluator_bytes for such rows.
int64_t SinusoidsBytes(const SinusoidColumns& columns);

// `kernels` outlives the result.
EvaluatorPtr PrepareSinusoids(SinusoidRows rows, DataType type,
                              const KernelSet& kernels);

// The same for axes side by side in one row. One axis or more.
int64_t SinusoidsBytes(const std::vector<SinusoidAxis>& axes);
EvaluatorPtr PrepareSinusoids(const std::vector<SinusoidAxis>& axes,
                              const NumberFormat& format,
                              const KernelSet& kernels);
// An Encoding's prepare_reals for them.
EvaluatorPtr PrepareSinusoidsAt(const RealPositionsPtr& positions,
                                const std::vector<SinusoidAxis>& axes,
                                const NumberFormat& format);

// Rows of numbers, and where their columns stand in wider rows.
struct RowPart {
  // Consecutive columns, the first of which is `from` here and `to` there.
  struct Run {
    int64_t from;
    int64_t to;
    int64_t columns;
  };

  // Puts the columns of `rows`, one after the other, at these columns.
  void PutAt(absl::Span<const int64_t> columns);

  EvaluatorPtr rows;
  int64_t width;
  std::vector<Run> runs = {};
};

// Bounds what JoinRows's result takes beside its parts and their runs.
int64_t JoinedBytes(int64_t width);

// Joins rows. Columns that no part has are those of `resting`, a row of `type`.
EvaluatorPtr JoinRows(std::vector<RowPart> parts,
                      std::vector<std::byte> resting, DataType type);

}  // namespace attnbias
