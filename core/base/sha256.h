// SPDX-License-Identifier: Apache-2.0
#ifndef ATTNBIAS_CORE_BASE_SHA256_H_
#define ATTNBIAS_CORE_BASE_SHA256_H_

#include <string>
#include <string_view>

namespace attnbias {

// SHA-256 of `bytes` as 64 lowercase hex characters.
std::string Sha256Hex(std::string_view bytes);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_BASE_SHA256_H_
