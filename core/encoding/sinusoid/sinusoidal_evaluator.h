// SPDX-License-Identifier: Apache-2.0
// Fills rows of sinusoids, in doubles if that decides the rounding, otherwise with increasing
// precision. Every element is correctly rounded, on any instruction set and however the range is
// split.
//
//   1. Anchors, one per block of rows, are double-doubles: the first comes from SinCosOf, and each
//      later one from rotating the previous one.
//   2. Kernels rotate a scaled anchor to the block's rows in plain doubles and report undecided
//      roundings. F64 output and output with an extreme scale use double-double rotations instead.
//   3. SinCosOf computes an undecided element, with a relative error of at most 2^-97.
//   4. The rows' reference computes elements that are still undecided.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attnbias/v1/encodings.pb.h"
#include "core/encoding/encoding.h"
#include "core/encoding/sinusoid/sinusoid.h"
#include "core/kernel/kernel_set.h"
#include "core/request/rules.h"
#include "core/table/table.h"
#include "core/tensor/data_type.h"
#include "core/tensor/positions.h"

namespace attnbias {

// Returns an Encoding's evaluator_bytes for rows with this many frequencies.
int64_t SinusoidsBytes(int64_t frequencies);

// `kernels` must outlive the result.
EvaluatorPtr PrepareSinusoids(SinusoidRows rows, DataType type, const KernelSet& kernels);

// The same two functions for one or more axes, whose columns are side by side in one row.
int64_t SinusoidsBytes(const std::vector<SinusoidAxis>& axes);
EvaluatorPtr PrepareSinusoids(const std::vector<SinusoidAxis>& axes, const NumberFormat& format,
                              const KernelSet& kernels);
// Implements an Encoding's prepare_reals for these axes.
EvaluatorPtr PrepareSinusoidsAt(const RealPositionsPtr& positions,
                                const std::vector<SinusoidAxis>& axes, const NumberFormat& format);

// Rows of elements, and the destinations of their columns in wider rows.
struct RowPart {
  // Consecutive columns, the first of which is at `from` here and at `to` in the wider rows.
  struct Run {
    int64_t from;
    int64_t to;
    int64_t columns;
  };

  // Places the columns of `rows`, in their order, at `columns`.
  void PutAt(absl::Span<const int64_t> columns);

  EvaluatorPtr rows;
  int64_t width;
  std::vector<Run> runs = {};
};

// Returns the maximum size in bytes of JoinRows's result, excluding its parts and their runs.
int64_t JoinedBytes(int64_t width);

// Joins rows. Columns that belong to no part come from `resting`, a row of elements of type `type`.
EvaluatorPtr JoinRows(std::vector<RowPart> parts, std::vector<std::byte> resting, DataType type);

// Sinusoids whose angles are reduced independently: at positions that are doubles, for sums over
// axes, and for angles that frameworks round to F32.

// The positions on one axis. Each must have a BinarySum with the offset.
struct ListedAxis {
  RealPositionsPtr positions;
  size_t axis;
  double offset;
};

// Coordinate n is the n-th position. The rows have no offset.
EvaluatorPtr PrepareListed(SinusoidRows rows, ListedAxis axis, DataType type);

// Frequencies for sums over axes.
struct FrequencyMatrix {
  std::vector<SinusoidAxis> axes;
  // [axes, pairs], in radians per unit of x.
  Table weights;
};
using FrequencyMatrixPtr = std::shared_ptr<const FrequencyMatrix>;

// Returns the matrix of a complete message with its axes (one by default). INVALID_ARGUMENT errors
// name a field of `encoding`.
absl::StatusOr<FrequencyMatrixPtr> FrequencyMatrixOf(
    absl::string_view encoding, const google::protobuf::RepeatedPtrField<v1::Axis>& axes,
    const v1::TableRef& matrix, int64_t pairs, const Tables& tables);

// Returns the maximum size in bytes of PrepareSummed's result.
int64_t SummedBytes(const FrequencyMatrix& matrix);

// Coordinate n is the n-th position in each axis's list or, if the lists are empty, position n on
// every axis. `columns` must have as many cosines as sines.
EvaluatorPtr PrepareSummed(const FrequencyMatrixPtr& matrix, const SinusoidColumns& columns,
                           const RealPositionsPtr& positions, const NumberFormat& format);

// Prepares [sines | cosines] rows. Each element is the scale times the sine or cosine of the angle
// fl32(position x inverse frequency), rounded once. Frequencies must have magnitudes in [2^-126,
// 2^64].
EvaluatorPtr PrepareFloat32Angles(std::vector<float> inverse_frequencies, RealToAnyPrecision scale,
                                  DataType type);

}  // namespace attnbias
