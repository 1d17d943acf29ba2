// SPDX-License-Identifier: Apache-2.0
// Sinusoidal absolute positions (Vaswani et al. 2017).
#include <vector>

#include "core/base/errors.h"
#include "core/encoding/encoding.h"
#include "core/encoding/sinusoid/sinusoidal_evaluator.h"
#include "core/request/rules.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

std::vector<AxisColumns> ColumnsOf(const std::vector<SinusoidAxis>& axes) {
  if (axes.size() == 1) return {};
  std::vector<int64_t> owners(axes.front().columns.width, kNoAxis);
  for (int64_t axis = 0; axis < std::ssize(axes); ++axis) {
    const SinusoidColumns& own = axes[axis].columns;
    for (int64_t i = 0; i < own.sines; ++i) {
      owners[own.sin_offset + i * own.pair_stride] = axis;
      if (i < own.cosines) owners[own.cos_offset + i * own.pair_stride] = axis;
    }
  }
  return RunsOf(owners);
}

// Describes a table whose columns depend on all axes.
absl::StatusOr<Encoding> DescribeSums(const v1::Sinusoidal& spec, const Tables& tables) {
  const auto refuse = [](absl::string_view field) {
    return Invalid("sinusoidal.", field, ": got a value, want none with frequency_matrix");
  };
  if (IdentityOf(spec.ladder(), false, Tables()) != IdentityOf(v1::Ladder(), false, Tables())) {
    return refuse("ladder");
  }
  if (spec.odd() != v1::ODD_COLUMN_SINE) return refuse("odd");
  if (spec.dim() % 2 != 0) {
    return Invalid("sinusoidal.dim: got ", spec.dim(),
                   ", want an even number with frequency_matrix");
  }
  ATTNBIAS_ASSIGN_OR_RETURN(const FrequencyMatrixPtr matrix,
                            FrequencyMatrixOf("sinusoidal", spec.axes(), spec.frequency_matrix(),
                                              spec.dim() / 2, tables));
  const SinusoidColumns columns(spec.dim(), spec.columns());
  return Encoding{
      .width = spec.dim(),
      .has_columns = true,
      .domain = kAllPositions,
      .evaluator_bytes = SummedBytes(*matrix),
      .prepare_reals =
          [matrix, columns](const NumberFormat& format, const RealPositionsPtr& positions) {
            return PrepareSummed(matrix, columns, positions, format);
          },
      .axis_offsets = OffsetsOf(matrix->axes)};
}

absl::StatusOr<Encoding> DescribeSinusoidal(const v1::Sinusoidal& spec, const Tables& tables) {
  if (spec.has_frequency_matrix()) return DescribeSums(spec, tables);
  ATTNBIAS_ASSIGN_OR_RETURN(const std::vector<SinusoidAxis> axes, AxesOf("sinusoidal", spec));
  return Encoding{.width = spec.dim(),
                  .has_columns = true,
                  .domain = kAllPositions,
                  .axis_columns = ColumnsOf(axes),
                  .evaluator_bytes = SinusoidsBytes(axes),
                  .prepare =
                      [axes](const NumberFormat& format, const KernelSet& kernels) {
                        return PrepareSinusoids(axes, format, kernels);
                      },
                  .prepare_reals =
                      [axes](const NumberFormat& format, const RealPositionsPtr& positions) {
                        return PrepareSinusoidsAt(positions, axes, format);
                      },
                  .axis_offsets = OffsetsOf(axes)};
}

const EncodingRegistration kSinusoidal(v1::TensorSpec::kSinusoidalFieldNumber, &DescribeSinusoidal);

}  // namespace
}  // namespace attnbias
