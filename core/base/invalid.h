// SPDX-License-Identifier: Apache-2.0
// The words of errors.
#ifndef ATTNBIAS_CORE_BASE_INVALID_H_
#define ATTNBIAS_CORE_BASE_INVALID_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace attnbias {

// INVALID_ARGUMENT: "FIELD: got WHAT, want WHAT", in parts.
template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// "PLACE: MESSAGE"; OK stays OK.
inline absl::Status Located(absl::string_view place,
                            const absl::Status& status) {
  return {status.code(), absl::StrCat(place, ": ", status.message())};
}

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_BASE_INVALID_H_
