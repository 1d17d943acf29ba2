// SPDX-License-Identifier: Apache-2.0
// Sinusoids of positions in several dimensions: every axis has a sinusoidal
// table of its own, and its columns side by side with the others'.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/encoding/checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/sinusoidal.h"
#include "core/encoding/sinusoidal_evaluator.h"

namespace attnbias {
namespace {

constexpr int64_t kMaxDim = 65536;
constexpr int64_t kMaxAxes = 4;

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
                     std::unique_ptr<const Evaluator> axis)
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

  int64_t memory_bytes() const override { return axis_->memory_bytes(); }

 private:
  void WriteRow(const std::byte* axis, std::byte* out) const {
    for (int64_t a = 0; a < num_axes_; ++a) {
      std::memcpy(out + a * axis_bytes_, axis, axis_bytes_);
    }
    const int64_t used = num_axes_ * axis_bytes_;
    std::memset(out + used, 0, row_bytes_ - used);
  }

  const std::unique_ptr<const Evaluator> axis_;
  const int64_t num_axes_;
  const int64_t axis_bytes_;
  const int64_t row_bytes_;
};

class MultiAxisSinusoidalEncoding final : public Encoding {
 public:
  MultiAxisSinusoidalEncoding(const MultiAxisSinusoidalSpec& spec, double scale)
      : spec_(spec), scale_(scale) {}

  std::string_view name() const override { return "multi_axis_sinusoidal"; }
  Structure structure() const override { return Structure::kTable; }
  int64_t lanes() const override { return 1; }
  int64_t width() const override { return spec_.dim; }
  Range domain() const override { return kAllPositions; }

  // Columns that are left over are as good as the last axis'.
  std::vector<AxisColumns> axis_columns() const override {
    const int64_t width = AxisTable(spec_).dim;
    std::vector<AxisColumns> runs;
    for (int64_t axis = 0; axis < spec_.num_axes; ++axis) {
      runs.push_back({axis, {axis * width, (axis + 1) * width}});
    }
    runs.back().columns.end = spec_.dim;
    return runs;
  }

  void WriteIdentity(CanonicalWriter& writer) const override {
    const MultiAxisSinusoidalSpec defaults;
    writer.Integer(1, spec_.dim);
    writer.Integer(2, spec_.num_axes);
    writer.Integer(3, static_cast<int64_t>(*spec_.layout));
    writer.Real(4, spec_.base, defaults.base);
    writer.Real(5, spec_.min_timescale, defaults.min_timescale);
    writer.Real(6, spec_.max_timescale, defaults.max_timescale);
    writer.Real(101, scale_, 1);
  }

  std::unique_ptr<const Evaluator> Prepare(
      DataType type, const KernelSet& kernels) const override {
    return std::make_unique<MultiAxisEvaluator>(
        spec_, type,
        std::make_unique<SinusoidalEvaluator>(RowsOf(AxisTable(spec_), scale_),
                                              type, kernels));
  }

 private:
  const MultiAxisSinusoidalSpec spec_;
  const double scale_;
};

absl::Status Check(const MultiAxisSinusoidalSpec& spec) {
  if (spec.num_axes < 1 || spec.num_axes > kMaxAxes) {
    return Invalid("multi_axis_sinusoidal.num_axes: got ", spec.num_axes,
                   ", want an integer in [1, ", kMaxAxes, "]");
  }
  if (spec.dim < 2 * spec.num_axes || spec.dim > kMaxDim) {
    return Invalid("multi_axis_sinusoidal.dim: got ", spec.dim,
                   ", want an integer in [", 2 * spec.num_axes, ", ", kMaxDim,
                   "]");
  }
  if (!spec.layout.has_value()) {
    return Invalid(
        "multi_axis_sinusoidal.layout: not set, want TENSOR2TENSOR, "
        "INTERLEAVED or CONCATENATED");
  }
  if (*spec.layout != MultiAxisLayout::kTensor2Tensor &&
      spec.dim % spec.num_axes != 0) {
    return Invalid("multi_axis_sinusoidal.dim: got ", spec.dim,
                   ", want a multiple of ", spec.num_axes, " (num_axes)");
  }
  return CheckProgression("multi_axis_sinusoidal", AxisTable(spec));
}

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const MultiAxisSinusoidalSpec& spec,
                                         const Output& output) {
  ATTNBIAS_RETURN_IF_ERROR(Check(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckBias(output, "multi_axis_sinusoidal"));
  ATTNBIAS_RETURN_IF_ERROR(CheckScale(output));
  return std::make_shared<const MultiAxisSinusoidalEncoding>(spec,
                                                             output.scale);
}

}  // namespace attnbias
