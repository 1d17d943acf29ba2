// SPDX-License-Identifier: Apache-2.0
#include "server/version.h"

namespace attnbias {

std::string_view Version() { return ATTNBIAS_VERSION; }

}  // namespace attnbias
