// SPDX-License-Identifier: Apache-2.0
#ifndef ATTNBIAS_CORE_BASE_INVALID_H_
#define ATTNBIAS_CORE_BASE_INVALID_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace attnbias {

// INVALID_ARGUMENT: "FIELD: got WHAT, want WHAT", in parts.
template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_BASE_INVALID_H_
