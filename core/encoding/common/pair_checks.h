// SPDX-License-Identifier: Apache-2.0
// What all requests over pairs of positions, tensors and logits, have in
// common. Messages begin with a field's path and ": ".
#ifndef ATTNBIAS_CORE_ENCODING_COMMON_PAIR_CHECKS_H_
#define ATTNBIAS_CORE_ENCODING_COMMON_PAIR_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/encoding/spec/tensor_spec.h"
#include "core/tensor/data_type.h"

namespace attnbias {

absl::Status CheckLength(absl::string_view field, int64_t length);

// The position of query 0. `path` is what precedes the fields' names.
absl::StatusOr<int64_t> QueryOffsetOf(absl::string_view path,
                                      int64_t query_length, int64_t key_length,
                                      std::optional<Alignment> alignment,
                                      std::optional<int64_t> query_offset);

// Writes what masked elements become, as an element of `type`.
absl::Status RoundFill(absl::string_view field, const MaskFill& fill,
                       DataType type, std::byte* out);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_COMMON_PAIR_CHECKS_H_
