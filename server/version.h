// SPDX-License-Identifier: Apache-2.0
// What this build calls itself.
#ifndef ATTNBIAS_SERVER_VERSION_H_
#define ATTNBIAS_SERVER_VERSION_H_

#include <string_view>

namespace attnbias {

// Semantic version of this build.
std::string_view Version();

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_VERSION_H_
