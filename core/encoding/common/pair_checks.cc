// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/common/pair_checks.h"

#include <cmath>
#include <limits>
#include <string>

#include "core/base/invalid.h"
#include "core/numerics/rounding.h"
#include "core/tensor/element.h"
#include "core/tensor/positions.h"

namespace attnbias {

absl::Status CheckLength(absl::string_view field, int64_t length) {
  if (length >= 1 && length <= kMaxPosition) return absl::OkStatus();
  return Invalid(field, ": ", Given(length), ", want an integer in [1, 2^40]");
}

absl::StatusOr<int64_t> QueryOffsetOf(absl::string_view path,
                                      int64_t query_length, int64_t key_length,
                                      std::optional<Alignment> alignment,
                                      std::optional<int64_t> query_offset) {
  if (query_offset.has_value()) {
    if (*query_offset >= -kMaxPosition && *query_offset <= kMaxPosition) {
      return *query_offset;
    }
    return Invalid(path, "query_offset: got ", *query_offset,
                   ", want an integer in [-2^40, 2^40]");
  }
  if (alignment == Alignment::kEnd) return key_length - query_length;
  if (alignment == Alignment::kStart || query_length == key_length) return 0;
  return Invalid(path,
                 "alignment: not set, want START, END or a query_offset where "
                 "query_length (",
                 query_length, ") and key_length (", key_length, ") differ");
}

absl::Status RoundFill(absl::string_view field, const MaskFill& fill,
                       DataType type, std::byte* out) {
  double value = -std::numeric_limits<double>::infinity();
  if (std::holds_alternative<Lowest>(fill)) {
    value = LowestOf(type);
  } else if (const double* given = std::get_if<double>(&fill)) {
    value = *given;
  }
  if (std::isnan(value)) return Invalid(field, ": got NaN, want a number");
  RoundDouble(value, type, out);
  if (std::isfinite(value) && !std::isfinite(ReadElement(type, out))) {
    return Invalid(field, ": got ", value, ", want a number that ",
                   std::string(NameOf(type)), " can hold");
  }
  return absl::OkStatus();
}

}  // namespace attnbias
