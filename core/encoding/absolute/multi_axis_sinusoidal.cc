// SPDX-License-Identifier: Apache-2.0
// Sinusoids of positions in several dimensions: every axis has a sinusoidal
// table of its own, and its columns side by side with the others'.
#include <algorithm>
#include <cmath>
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
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

// Rows are laid out in pieces of about this size, which stays in a core's own
// cache.
constexpr int64_t kAxisPieceBytes = int64_t{128} << 10;

// Where positions are fractions of a length: rows of a table, which may count
// in halves and from elsewhere, then are positions too.
constexpr Range kFractions = {-(kMaxPosition >> 2), (kMaxPosition >> 2) + 1};

// The table of one axis.
SinusoidTable AxisTable(const v1::MultiAxisSinusoidal& spec) {
  SinusoidTable axis = {.dim = spec.dim() / spec.num_axes(),
                        .base = spec.base(),
                        .min_timescale = spec.min_timescale(),
                        .max_timescale = spec.max_timescale()};
  switch (spec.layout()) {
    case v1::MULTI_AXIS_LAYOUT_TENSOR2TENSOR:
      axis.layout = v1::SINUSOIDAL_LAYOUT_TENSOR2TENSOR;
      axis.dim = axis.dim / 2 * 2;
      break;
    case v1::MULTI_AXIS_LAYOUT_INTERLEAVED:
      axis.layout = v1::SINUSOIDAL_LAYOUT_INTERLEAVED;
      break;
    case v1::MULTI_AXIS_LAYOUT_CONCATENATED:
      axis.layout = v1::SINUSOIDAL_LAYOUT_CONCATENATED;
      break;
    default:  // Complete has refused it.
      break;
  }
  return axis;
}

// Axes of different lengths have different tables; those of none have one.
int64_t NumTables(const v1::MultiAxisSinusoidal& spec) {
  return spec.axis_lengths().empty() ? 1 : spec.num_axes();
}

// Rows of an axis' table count in whole positions, or in halves where the
// offset is one.
struct TableRows {
  int64_t per_position;
  int64_t of_zero;

  explicit TableRows(double offset)
      : per_position(offset == std::floor(offset) ? 1 : 2),
        of_zero(std::llround(static_cast<double>(per_position) * offset)) {}

  int64_t Of(int64_t position) const {
    return per_position * position + of_zero;
  }
};

// From one row of an axis' table to the next.
AxisStretch StretchOf(const v1::MultiAxisSinusoidal& spec, int64_t axis) {
  if (spec.axis_lengths().empty()) return {};
  const TableRows rows(spec.axis_offset());
  return {
      .factor = spec.axis_scale() / static_cast<double>(rows.per_position),
      .length = static_cast<double>(spec.axis_lengths(static_cast<int>(axis))),
      .eps = spec.axis_eps()};
}

// All axes at one position.
class MultiAxisEvaluator final : public Evaluator {
 public:
  MultiAxisEvaluator(const v1::MultiAxisSinusoidal& spec, DataType type,
                     std::vector<EvaluatorPtr> tables)
      : tables_(std::move(tables)),
        rows_(spec.axis_offset()),
        num_axes_(spec.num_axes()),
        axis_bytes_(AxisTable(spec).dim * SizeOf(type)),
        row_bytes_(spec.dim() * SizeOf(type)) {}

  void Fill(const Block& block, std::byte* out,
            int64_t /*lane_stride_bytes*/) const override {
    const int64_t stride = rows_.per_position * axis_bytes_;
    const int64_t most = std::max<int64_t>(kAxisPieceBytes / stride, 1);
    std::vector<std::byte> piece(std::min(most, block.span.size()) * stride);
    for (int64_t first = block.span.begin; first < block.span.end;) {
      const int64_t end = std::min(first + most, block.span.end);
      for (int64_t axis = 0; axis < num_axes_; ++axis) {
        if (axis < std::ssize(tables_)) {
          tables_[axis]->Fill(
              {{0, 1}, {rows_.Of(first), rows_.Of(end - 1) + 1}}, piece.data(),
              0);
        }
        for (int64_t row = 0; row < end - first; ++row) {
          std::memcpy(out + row * row_bytes_ + axis * axis_bytes_,
                      piece.data() + row * stride, axis_bytes_);
        }
      }
      const int64_t used = num_axes_ * axis_bytes_;
      for (; first < end; ++first, out += row_bytes_) {
        std::memset(out + used, 0, row_bytes_ - used);
      }
    }
  }

 private:
  const std::vector<EvaluatorPtr> tables_;
  const TableRows rows_;
  const int64_t num_axes_;
  const int64_t axis_bytes_;
  const int64_t row_bytes_;
};

// The axes' tables, and a piece of one.
int64_t EvaluatorBytes(const v1::MultiAxisSinusoidal& spec) {
  const SinusoidColumns columns(AxisTable(spec));
  return NumTables(spec) * SinusoidsBytes(columns) + kAxisPieceBytes +
         2 * columns.width * int64_t{sizeof(double)};
}

// Columns that are left over are as good as the last axis'.
std::vector<AxisColumns> ColumnsOf(const v1::MultiAxisSinusoidal& spec) {
  const int64_t width = AxisTable(spec).dim;
  std::vector<AxisColumns> columns;
  for (int64_t axis = 0; axis < spec.num_axes(); ++axis) {
    columns.push_back({axis, {axis * width, (axis + 1) * width}});
  }
  columns.back().columns.end = spec.dim();
  return columns;
}

absl::Status CheckDim(const v1::MultiAxisSinusoidal& spec) {
  if (spec.dim() < 2 * spec.num_axes()) {
    return Invalid("multi_axis_sinusoidal.dim: got ", spec.dim(),
                   ", want at least ", 2 * spec.num_axes(), " (2 num_axes)");
  }
  if (spec.layout() == v1::MULTI_AXIS_LAYOUT_TENSOR2TENSOR ||
      spec.dim() % spec.num_axes() == 0) {
    return absl::OkStatus();
  }
  return Invalid("multi_axis_sinusoidal.dim: got ", spec.dim(),
                 ", want a multiple of ", spec.num_axes(), " (num_axes)");
}

absl::Status CheckFractions(const v1::MultiAxisSinusoidal& spec) {
  if (spec.axis_lengths().empty()) return absl::OkStatus();
  if (spec.axis_lengths_size() != spec.num_axes()) {
    return Invalid("multi_axis_sinusoidal.axis_lengths: got ",
                   spec.axis_lengths_size(), " numbers, want ", spec.num_axes(),
                   " (num_axes)");
  }
  if (std::fmod(spec.axis_offset(), 0.5) != 0) {
    return Invalid("multi_axis_sinusoidal.axis_offset: got ",
                   spec.axis_offset(), ", want a multiple of 0.5");
  }
  return absl::OkStatus();
}

absl::StatusOr<Encoding> DescribeMultiAxisSinusoidal(
    const v1::MultiAxisSinusoidal& spec, const Tables& /*tables*/) {
  ATTNBIAS_RETURN_IF_ERROR(CheckDim(spec));
  ATTNBIAS_RETURN_IF_ERROR(
      CheckTimescales("multi_axis_sinusoidal", AxisTable(spec)));
  ATTNBIAS_RETURN_IF_ERROR(CheckFractions(spec));
  return Encoding{
      .width = spec.dim(),
      .has_columns = true,
      .domain = spec.axis_lengths().empty() ? kAllPositions : kFractions,
      .axis_columns = ColumnsOf(spec),
      .evaluator_bytes = EvaluatorBytes(spec),
      .prepare = [spec](const NumberFormat& format, const KernelSet& kernels) {
        std::vector<EvaluatorPtr> tables;
        for (int64_t axis = 0; axis < NumTables(spec); ++axis) {
          tables.push_back(PrepareSinusoids(
              RowsOf(AxisTable(spec), format.scale, StretchOf(spec, axis)),
              format.type, kernels));
        }
        return std::make_unique<MultiAxisEvaluator>(spec, format.type,
                                                    std::move(tables));
      }};
}

const EncodingRegistration kMultiAxisSinusoidal(
    v1::TensorSpec::kMultiAxisSinusoidalFieldNumber,
    &DescribeMultiAxisSinusoidal);

}  // namespace
}  // namespace attnbias
