// SPDX-License-Identifier: Apache-2.0
// Sinusoids whose angles are each reduced by themselves: at positions that are doubles, of sums
// over axes, and of angles that frameworks round to F32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attnbias/v1/encodings.pb.h"
#include "core/encoding/encoding.h"
#include "core/encoding/sinusoid/sinusoid.h"
#include "core/request/tables.h"
#include "core/table/table.h"
#include "core/tensor/data_type.h"
#include "core/tensor/positions.h"

namespace attnbias {

// The positions of one axis. Each has a BinarySum with the offset.
struct ListedAxis {
  RealPositionsPtr positions;
  size_t axis;
  double offset;
};

// Coordinate n stands for the n-th position. The rows have no offset.
EvaluatorPtr PrepareListed(SinusoidRows rows, ListedAxis axis, DataType type);

// Frequencies of sums over axes.
struct FrequencyMatrix {
  std::vector<SinusoidAxis> axes;
  // [axes, pairs], in radians per unit of x.
  Table weights;
};
using FrequencyMatrixPtr = std::shared_ptr<const FrequencyMatrix>;

// Returns the matrix of a complete message and its axes, by default one. INVALID_ARGUMENT names a
// field of `encoding`.
absl::StatusOr<FrequencyMatrixPtr> FrequencyMatrixOf(
    absl::string_view encoding, const google::protobuf::RepeatedPtrField<v1::Axis>& axes,
    const v1::TableRef& matrix, int64_t pairs, const Tables& tables);

// Returns the maximum bytes of PrepareSummed's result.
int64_t SummedBytes(const FrequencyMatrix& matrix);

// Coordinate n stands for the n-th position of every axis, or for position n if the lists are
// empty. `columns` has as many cosines as sines.
EvaluatorPtr PrepareSummed(const FrequencyMatrixPtr& matrix, const SinusoidColumns& columns,
                           const RealPositionsPtr& positions, const NumberFormat& format);

// Prepares rows [sines | cosines], each element scale x sine or cosine of its angle, fl32(position
// x inverse frequency), rounded once. Frequencies have magnitudes in [2^-126, 2^64].
EvaluatorPtr PrepareFloat32Angles(std::vector<float> inverse_frequencies, RealToAnyPrecision scale,
                                  DataType type);

}  // namespace attnbias
