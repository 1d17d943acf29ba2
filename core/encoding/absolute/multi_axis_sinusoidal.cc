// SPDX-License-Identifier: Apache-2.0
// Sinusoids of positions in several dimensions: every axis has a sinusoidal
// table of its own, and its columns side by side with the others'.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/sinusoid/sinusoid.h"
#include "core/encoding/sinusoid/sinusoidal_evaluator.h"
#include "core/encoding/spec/limits.h"
#include "core/encoding/spec/sinusoidal.h"

namespace attnbias {
namespace {

// Rows are laid out in pieces of about this size, which stays in a core's own
// cache.
constexpr int64_t kPieceBytes = int64_t{128} << 10;

// The table of one axis.
SinusoidalSpec AxisTable(const MultiAxisSinusoidalSpec& spec) {
  SinusoidalSpec axis = {.dim = spec.dim / spec.num_axes,
                         .base = spec.base,
                         .min_timescale = spec.min_timescale,
                         .max_timescale = spec.max_timescale};
  switch (*spec.layout) {
    case MultiAxisLayout::kTensor2Tensor:
      axis.layout = SinusoidalLayout::kTensor2Tensor;
      axis.dim = axis.dim / 2 * 2;
      break;
    case MultiAxisLayout::kInterleaved:
      axis.layout = SinusoidalLayout::kInterleaved;
      break;
    case MultiAxisLayout::kConcatenated:
      axis.layout = SinusoidalLayout::kConcatenated;
      break;
  }
  return axis;
}

// All axes at one position.
class MultiAxisEvaluator final : public Evaluator {
 public:
  MultiAxisEvaluator(const MultiAxisSinusoidalSpec& spec, DataType type,
                     EvaluatorPtr axis)
      : axis_(std::move(axis)),
        num_axes_(spec.num_axes),
        axis_bytes_(AxisTable(spec).dim * SizeOf(type)),
        row_bytes_(spec.dim * SizeOf(type)) {}

  void Fill(const Block& block, std::byte* out,
            int64_t /*lane_stride_bytes*/) const override {
    const int64_t most = std::max<int64_t>(kPieceBytes / axis_bytes_, 1);
    std::vector<std::byte> piece(std::min(most, block.span.size()) *
                                 axis_bytes_);
    for (int64_t first = block.span.begin; first < block.span.end;) {
      const int64_t end = std::min(first + most, block.span.end);
      axis_->Fill({{0, 1}, {first, end}}, piece.data(), 0);
      for (int64_t row = 0; row < end - first; ++row) {
        WriteRow(piece.data() + row * axis_bytes_, out);
        out += row_bytes_;
      }
      first = end;
    }
  }

 private:
  void WriteRow(const std::byte* axis, std::byte* out) const {
    for (int64_t a = 0; a < num_axes_; ++a) {
      std::memcpy(out + a * axis_bytes_, axis, axis_bytes_);
    }
    const int64_t used = num_axes_ * axis_bytes_;
    std::memset(out + used, 0, row_bytes_ - used);
  }

  const EvaluatorPtr axis_;
  const int64_t num_axes_;
  const int64_t axis_bytes_;
  const int64_t row_bytes_;
};

// The axes' table, and a piece of it.
int64_t EvaluatorBytes(const MultiAxisSinusoidalSpec& spec) {
  const SinusoidColumns columns(AxisTable(spec));
  return SinusoidsBytes(columns) + kPieceBytes +
         columns.width * int64_t{sizeof(double)};
}

// Columns that are left over are as good as the last axis'.
std::vector<AxisColumns> ColumnsOf(const MultiAxisSinusoidalSpec& spec) {
  const int64_t width = AxisTable(spec).dim;
  std::vector<AxisColumns> columns;
  for (int64_t axis = 0; axis < spec.num_axes; ++axis) {
    columns.push_back({axis, {axis * width, (axis + 1) * width}});
  }
  columns.back().columns.end = spec.dim;
  return columns;
}

absl::Status CheckDim(const MultiAxisSinusoidalSpec& spec) {
  if (spec.dim < 2 * spec.num_axes) {
    return Invalid("multi_axis_sinusoidal.dim: got ", spec.dim,
                   ", want an integer in [", 2 * spec.num_axes, ", ", kMaxDim,
                   "]");
  }
  if (spec.layout == MultiAxisLayout::kTensor2Tensor ||
      spec.dim % spec.num_axes == 0) {
    return absl::OkStatus();
  }
  return Invalid("multi_axis_sinusoidal.dim: got ", spec.dim,
                 ", want a multiple of ", spec.num_axes, " (num_axes)");
}

absl::StatusOr<Encoding> DescribeMultiAxisSinusoidal(
    const MultiAxisSinusoidalSpec& spec) {
  ATTNBIAS_RETURN_IF_ERROR(CheckDim(spec));
  return Encoding{
      .width = spec.dim,
      .has_columns = true,
      .domain = kAllPositions,
      .axis_columns = ColumnsOf(spec),
      .evaluator_bytes = EvaluatorBytes(spec),
      .prepare = [spec](const NumberFormat& format, const KernelSet& kernels) {
        return std::make_unique<MultiAxisEvaluator>(
            spec, format.type,
            PrepareSinusoids(AxisTable(spec), format, kernels));
      }};
}

const EncodingRegistration kMultiAxisSinusoidal(&DescribeMultiAxisSinusoidal);

}  // namespace
}  // namespace attnbias
