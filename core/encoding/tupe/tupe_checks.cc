// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/tupe/tupe_checks.h"

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>

#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "core/encoding/common/linear.h"
#include "core/encoding/common/t5_buckets.h"
#include "core/encoding/common/table_checks.h"
#include "core/encoding/spec/limits.h"
#include "core/encoding/spec/t5.h"
#include "core/encoding/spec/tupe.h"

namespace attnbias {
namespace {

constexpr int64_t kMaxDim = 4096;

// A table of the absolute term, which has all or none.
struct PositionField {
  absl::string_view name;
  const std::optional<Table>& table;
  std::initializer_list<TableAxis> axes;
};

absl::Status CheckPresent(std::initializer_list<PositionField> fields) {
  const PositionField& first = *fields.begin();
  for (const PositionField& field : fields) {
    if (field.table.has_value() == first.table.has_value()) continue;
    return field.table.has_value()
               ? Invalid(first.name, ": not set, want it with ", field.name)
               : Invalid(field.name, ": not set, want it with ", first.name);
  }
  return absl::OkStatus();
}

absl::Status CheckFields(std::initializer_list<PositionField> fields) {
  ATTNBIAS_RETURN_IF_ERROR(CheckPresent(fields));
  for (const PositionField& field : fields) {
    if (!field.table.has_value()) continue;
    ATTNBIAS_RETURN_IF_ERROR(CheckShape(field.name, *field.table, field.axes));
    ATTNBIAS_RETURN_IF_ERROR(CheckWithinF32(field.name, *field.table));
  }
  return absl::OkStatus();
}

absl::Status CheckPositionTable(const TupeSpec& spec) {
  const Table& table = *spec.position_table;
  const int64_t dim = table.columns();
  const int64_t least = spec.reset_class_token ? 2 : 1;
  if (dim > kMaxDim || table.rows() < least ||
      table.size() > kMaxNetworkNumbers) {
    return Invalid("tupe.position_table: got ", table.rows(), " rows of ", dim,
                   ", want at least ", least, ", of at most ", kMaxDim, " and ",
                   kMaxNetworkNumbers, " numbers in all");
  }
  if (spec.num_heads < 1 || dim % spec.num_heads != 0) {
    return Invalid("tupe.num_heads: got ", spec.num_heads,
                   ", want a divisor of position_table's columns, ", dim);
  }
  return absl::OkStatus();
}

absl::Status CheckAbsolute(const TupeSpec& spec) {
  if (!spec.position_table.has_value()) {
    return Invalid(
        "tupe.position_table: not set, want it with the other tables of the "
        "absolute term");
  }
  const int64_t rows = spec.position_table->rows();
  const int64_t dim = spec.position_table->columns();
  const TableAxis model = {dim, "d_model"};
  ATTNBIAS_RETURN_IF_ERROR(CheckFields({
      {"tupe.position_table", spec.position_table, {{rows, "rows"}, model}},
      {"tupe.query_weight", spec.query_weight, {model, model}},
      {"tupe.query_bias", spec.query_bias, {model}},
      {"tupe.key_weight", spec.key_weight, {model, model}},
      {"tupe.key_bias", spec.key_bias, {model}},
  }));
  ATTNBIAS_RETURN_IF_ERROR(CheckFields({
      {"tupe.norm_weight", spec.norm_weight, {model}},
      {"tupe.norm_bias", spec.norm_bias, {model}},
  }));
  return CheckPositionTable(spec);
}

absl::Status CheckPositionScale(const TupeSpec& spec) {
  const double scale = std::fabs(spec.position_scale.value_or(1));
  if (scale > 0 && scale <= std::numeric_limits<float>::max()) {
    return absl::OkStatus();
  }
  return Invalid("tupe.position_scale: got ", *spec.position_scale,
                 ", want a number other than 0 within F32's range");
}

bool HasAbsolute(const TupeSpec& spec) {
  return spec.position_table || spec.query_weight || spec.query_bias ||
         spec.key_weight || spec.key_bias || spec.norm_weight ||
         spec.norm_bias || spec.position_scale;
}

}  // namespace

absl::Status CheckTupe(const TupeSpec& spec) {
  ATTNBIAS_RETURN_IF_ERROR(CheckBuckets("tupe", BucketsOf(spec)));
  if (!HasAbsolute(spec)) return absl::OkStatus();
  ATTNBIAS_RETURN_IF_ERROR(CheckPositionScale(spec));
  return CheckAbsolute(spec);
}

absl::Status CheckRelativeTable(const TupeSpec& spec) {
  if (!spec.relative_table.has_value()) {
    if (spec.position_table.has_value()) return absl::OkStatus();
    return Invalid(
        "tupe.relative_table: not set, want it or position_table, or values "
        "BUCKETS");
  }
  const int64_t rows = spec.num_buckets + (spec.reset_class_token ? 1 : 0);
  return CheckShape("tupe.relative_table", *spec.relative_table,
                    {{rows, "buckets"}, {spec.num_heads, "heads"}});
}

T5Spec BucketsOf(const TupeSpec& spec) {
  return {.num_buckets = spec.num_buckets,
          .max_distance = spec.max_distance,
          .bidirectional = true};
}

}  // namespace attnbias
