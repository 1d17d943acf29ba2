// SPDX-License-Identifier: Apache-2.0
// Checks shared by tensor and logits requests over pairs of positions. Messages begin with a
// field's path and ": ".
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attnbias/v1/tensor.pb.h"
#include "core/base/errors.h"
#include "core/numerics/rounding.h"
#include "core/tensor/data_type.h"

namespace attnbias {

// Returns the position of query 0 in a PairExtent or a LogitsSpec. `path` precedes field names.
template <typename Message>
absl::StatusOr<int64_t> QueryOffsetOf(absl::string_view path, const Message& pair) {
  if (pair.has_query_offset()) return pair.query_offset();
  if (pair.alignment() == v1::ALIGNMENT_END) {
    return pair.key_length() - pair.query_length();
  }
  if (pair.alignment() == v1::ALIGNMENT_START || pair.query_length() == pair.key_length()) {
    return 0;
  }
  return Invalid(path, "alignment: not set, want START, END or a query_offset if query_length (",
                 pair.query_length(), ") and key_length (", pair.key_length(), ") differ");
}

// Writes the value that a Mask or a LogitsSpec gives masked elements, as an element of type `type`.
// `path` precedes field names.
template <typename Message>
absl::Status RoundFill(absl::string_view path, const Message& owner, DataType type,
                       std::byte* out) {
  double value = -std::numeric_limits<double>::infinity();
  if (owner.has_fill_lowest()) {
    if (!owner.fill_lowest()) {
      return Invalid(path, "fill_lowest: got false, want true or fill_value");
    }
    value = LowestOf(type);
  } else if (owner.has_fill_value()) {
    value = owner.fill_value();
  }
  if (std::isnan(value)) {
    return Invalid(path, "fill_value: got NaN, want a number");
  }
  RoundDouble(value, type, out);
  if (std::isfinite(value) && !std::isfinite(ReadElement(type, out))) {
    return Invalid(path, "fill_value: got ", value, ", want a number that ",
                   std::string(NameOf(type)), " can hold");
  }
  return absl::OkStatus();
}

}  // namespace attnbias
