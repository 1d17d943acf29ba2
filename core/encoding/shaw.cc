// SPDX-License-Identifier: Apache-2.0
// Relative position representations (Shaw et al. 2018): a learned vector for
// every relative position.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "core/base/status_macros.h"
#include "core/encoding/checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/numerics/rounding.h"
#include "core/tensor/element.h"

namespace attnbias {
namespace {

// Exclusive: indices fit into I32.
constexpr int64_t kMaxReach = int64_t{1} << 30;

// Rows of the table's last two axes, and the row of a relative position.
struct ShawRows {
  explicit ShawRows(const ShawSpec& spec)
      : left(*spec.left), right(*spec.right), sign(spec.sign) {}

  int64_t count() const { return left + right + 1; }
  int64_t IndexOf(int64_t relative) const {
    const int64_t clipped = std::clamp(relative, -left, right);
    return sign == RelativeSign::kKeyMinusQuery ? clipped + left
                                                : right - clipped;
  }

  int64_t left;
  int64_t right;
  RelativeSign sign;
};

class ShawIndices final : public Evaluator {
 public:
  explicit ShawIndices(const ShawRows& rows) : rows_(rows) {}

  void Fill(const Block& block, std::byte* out,
            int64_t /*lane_stride_bytes*/) const override {
    for (int64_t at = block.span.begin; at < block.span.end; ++at) {
      const auto index = static_cast<int32_t>(rows_.IndexOf(at));
      std::memcpy(out, &index, sizeof(index));
      out += sizeof(index);
    }
  }

 private:
  const ShawRows rows_;
};

class ShawVectors final : public Evaluator {
 public:
  ShawVectors(const ShawRows& rows, const Table& table, double scale,
              DataType type)
      : rows_(rows),
        table_(table),
        width_(table.shape().back()),
        scale_(scale),
        type_(type) {}

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override {
    for (int64_t lane = block.lanes.begin; lane < block.lanes.end; ++lane) {
      FillLane(lane, block.span, out);
      out += lane_stride_bytes;
    }
  }

 private:
  void FillLane(int64_t lane, Range span, std::byte* out) const {
    const int64_t row_bytes = width_ * SizeOf(type_);
    int64_t written = -1;
    for (int64_t at = span.begin; at < span.end; ++at) {
      const int64_t index = rows_.IndexOf(at);
      if (index == written) {
        std::memcpy(out, out - row_bytes, row_bytes);
      } else {
        WriteRow(lane, index, out);
      }
      written = index;
      out += row_bytes;
    }
  }

  void WriteRow(int64_t lane, int64_t index, std::byte* out) const {
    const bool per_head = table_.shape().size() == 3;
    const int64_t row = per_head ? lane : index;
    const int64_t first = per_head ? index * width_ : 0;
    for (int64_t column = 0; column < width_; ++column) {
      RoundProduct(table_.At(row, first + column), scale_, type_, out);
      out += SizeOf(type_);
    }
  }

  const ShawRows rows_;
  const Table table_;
  const int64_t width_;
  const double scale_;
  const DataType type_;
};

class ShawEncoding final : public Encoding {
 public:
  ShawEncoding(const ShawSpec& spec, const Output& output)
      : spec_(spec), output_(output) {}

  std::string_view name() const override { return "shaw"; }
  Structure structure() const override { return Structure::kToeplitz; }
  int64_t lanes() const override {
    return has_heads() ? spec_.table->shape()[0] : 1;
  }
  bool has_heads() const override {
    return !has_indices() && spec_.table->shape().size() == 3;
  }
  int64_t width() const override {
    return has_indices() ? 1 : spec_.table->shape().back();
  }
  bool has_columns() const override { return !has_indices(); }
  bool has_indices() const override {
    return output_.values == Values::kBuckets;
  }
  Range domain() const override {
    if (spec_.beyond == BeyondReach::kClip) return kRelativePositions;
    return {-*spec_.left, *spec_.right + 1};
  }

  void WriteIdentity(CanonicalWriter& writer) const override {
    const ShawSpec defaults;
    if (!has_indices()) writer.Bytes(1, spec_.table->sha256());
    writer.Integer(2, *spec_.left);
    writer.Integer(3, *spec_.right);
    writer.Integer(4, static_cast<int64_t>(spec_.beyond),
                   static_cast<int64_t>(defaults.beyond));
    writer.Integer(5, static_cast<int64_t>(spec_.sign),
                   static_cast<int64_t>(defaults.sign));
    WriteValues(has_indices(), writer);
    writer.Real(101, output_.scale, 1);
  }

  std::unique_ptr<const Evaluator> Prepare(
      DataType type, const KernelSet& /*kernels*/) const override {
    const ShawRows rows(spec_);
    if (has_indices()) return std::make_unique<ShawIndices>(rows);
    return std::make_unique<ShawVectors>(rows, *spec_.table, output_.scale,
                                         type);
  }

 private:
  const ShawSpec spec_;
  const Output output_;
};

absl::Status CheckReach(absl::string_view field,
                        const std::optional<int64_t>& reach) {
  if (!reach.has_value()) {
    return Invalid(field, ": not set, want an integer in [0, 2^30)");
  }
  if (*reach >= 0 && *reach < kMaxReach) return absl::OkStatus();
  return Invalid(field, ": got ", *reach, ", want an integer in [0, 2^30)");
}

absl::Status CheckTable(const ShawSpec& spec) {
  const int64_t rows = ShawRows(spec).count();
  if (!spec.table.has_value()) {
    return Invalid("shaw.table: not set, want a table of [", rows,
                   " relative positions, columns], a head axis before them "
                   "where heads differ, or values BUCKETS");
  }
  const Axis positions = {rows, "relative positions"};
  const Axis columns = {spec.table->shape().back(), "columns"};
  if (spec.table->shape().size() < 3) {
    return CheckShape("shaw.table", *spec.table, {positions, columns});
  }
  const Axis heads = {spec.table->shape()[0], "heads"};
  if (heads.length > kMaxNumHeads) {
    return Invalid("shaw.table: got ", heads.length, " heads, want at most ",
                   kMaxNumHeads);
  }
  return CheckShape("shaw.table", *spec.table, {heads, positions, columns});
}

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const ShawSpec& spec,
                                         const Output& output) {
  ATTNBIAS_RETURN_IF_ERROR(CheckReach("shaw.left", spec.left));
  ATTNBIAS_RETURN_IF_ERROR(CheckReach("shaw.right", spec.right));
  ATTNBIAS_RETURN_IF_ERROR(CheckScale(output));
  ATTNBIAS_RETURN_IF_ERROR(output.values == Values::kBuckets
                               ? CheckUnscaled(output)
                               : CheckTable(spec));
  return std::make_shared<const ShawEncoding>(spec, output);
}

}  // namespace attnbias
