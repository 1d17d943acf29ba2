// SPDX-License-Identifier: Apache-2.0
// Learned absolute positions: rows of a table, perhaps stretched to another
// length.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "core/base/status_macros.h"
#include "core/encoding/checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/interpolation.h"
#include "core/encoding/make_encoding.h"
#include "core/numerics/rounding.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

constexpr int64_t kMaxInterpolatedLength = int64_t{1} << 20;

class LearnedAbsoluteEvaluator final : public Evaluator {
 public:
  LearnedAbsoluteEvaluator(const LearnedAbsoluteSpec& spec, double scale,
                           DataType type)
      : spec_(spec),
        table_(*spec.table),
        scale_(scale),
        type_(type),
        interpolator_(scale, type) {}

  void Fill(const Block& block, std::byte* out,
            int64_t /*lane_stride_bytes*/) const override {
    const int64_t row_bytes = table_.columns() * SizeOf(type_);
    for (int64_t at = block.span.begin; at < block.span.end; ++at) {
      const int64_t row = at + spec_.offset;
      if (row == spec_.padding_idx) {
        std::memset(out, 0, row_bytes);
      } else {
        WriteRow(PlaceOf(spec_.interpolation, row, table_.rows(),
                         spec_.interpolated_length.value_or(table_.rows())),
                 out);
      }
      out += row_bytes;
    }
  }

 private:
  void WriteRow(const RowPlace& place, std::byte* out) const {
    for (int64_t column = 0; column < table_.columns(); ++column) {
      const double value = table_.At(place.row, column);
      if (place.upper == 0) {
        RoundProduct(value, scale_, type_, out);
      } else {
        interpolator_.Write(place, value, table_.At(place.row + 1, column),
                            out);
      }
      out += SizeOf(type_);
    }
  }

  const LearnedAbsoluteSpec spec_;
  const Table table_;
  const double scale_;
  const DataType type_;
  const Interpolator interpolator_;
};

class LearnedAbsoluteEncoding final : public Encoding {
 public:
  LearnedAbsoluteEncoding(const LearnedAbsoluteSpec& spec, double scale)
      : spec_(spec), scale_(scale) {}

  std::string_view name() const override { return "learned_absolute"; }
  Structure structure() const override { return Structure::kTable; }
  int64_t lanes() const override { return 1; }
  int64_t width() const override { return spec_.table->columns(); }
  Range domain() const override {
    const int64_t rows =
        spec_.interpolated_length.value_or(spec_.table->rows());
    return {-spec_.offset, rows - spec_.offset};
  }

  void WriteIdentity(CanonicalWriter& writer) const override {
    writer.Bytes(1, spec_.table->sha256());
    writer.Integer(2, spec_.offset);
    writer.Integer(3, spec_.padding_idx.value_or(-1), -1);
    writer.Integer(4, static_cast<int64_t>(spec_.interpolation),
                   static_cast<int64_t>(Interpolation::kNone));
    writer.Integer(5, spec_.interpolated_length.value_or(0));
    writer.Real(101, scale_, 1);
  }

  std::unique_ptr<const Evaluator> Prepare(
      DataType type, const KernelSet& /*kernels*/) const override {
    return std::make_unique<LearnedAbsoluteEvaluator>(spec_, scale_, type);
  }

 private:
  const LearnedAbsoluteSpec spec_;
  const double scale_;
};

absl::Status CheckTable(const LearnedAbsoluteSpec& spec) {
  if (!spec.table.has_value()) {
    return Invalid("learned_absolute.table: not set, want a table of [",
                   "positions, columns]");
  }
  const absl::Span<const int64_t> shape = spec.table->shape();
  return CheckShape("learned_absolute.table", *spec.table,
                    {{shape.front(), "positions"}, {shape.back(), "columns"}});
}

absl::Status CheckPadding(const LearnedAbsoluteSpec& spec) {
  if (!spec.padding_idx.has_value()) return absl::OkStatus();
  if (spec.interpolation != Interpolation::kNone) {
    return Invalid("learned_absolute.padding_idx: got ", *spec.padding_idx,
                   ", want none with interpolation, which has no padding row");
  }
  const int64_t rows = spec.table->rows();
  if (*spec.padding_idx >= 0 && *spec.padding_idx < rows) {
    return absl::OkStatus();
  }
  return Invalid("learned_absolute.padding_idx: got ", *spec.padding_idx,
                 ", want a row of the table, in [0, ", rows, ")");
}

absl::Status CheckInterpolation(const LearnedAbsoluteSpec& spec) {
  constexpr absl::string_view kField = "learned_absolute.interpolated_length";
  const std::optional<int64_t>& length = spec.interpolated_length;
  if (spec.interpolation == Interpolation::kNone) {
    if (!length.has_value()) return absl::OkStatus();
    return Invalid(kField, ": got ", *length,
                   ", want none without interpolation");
  }
  if (!length.has_value()) {
    return Invalid(kField, ": not set, want the rows after interpolation");
  }
  if (*length >= 1 && *length <= kMaxInterpolatedLength) {
    return absl::OkStatus();
  }
  return Invalid(kField, ": got ", *length, ", want an integer in [1, 2^20]");
}

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const LearnedAbsoluteSpec& spec,
                                         const Output& output) {
  ATTNBIAS_RETURN_IF_ERROR(CheckTable(spec));
  if (spec.offset < -kMaxPosition || spec.offset > kMaxPosition) {
    return Invalid("learned_absolute.offset: got ", spec.offset,
                   ", want an integer in [-2^40, 2^40]");
  }
  ATTNBIAS_RETURN_IF_ERROR(CheckPadding(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckInterpolation(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckBias(output, "learned_absolute"));
  ATTNBIAS_RETURN_IF_ERROR(CheckScale(output));
  return std::make_shared<const LearnedAbsoluteEncoding>(spec, output.scale);
}

}  // namespace attnbias
