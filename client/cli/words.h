// SPDX-License-Identifier: Apache-2.0
// What a server says, with flags in place of the contract's fields.
#ifndef ATTNBIAS_CLIENT_CLI_WORDS_H_
#define ATTNBIAS_CLIENT_CLI_WORDS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace attnbias {

// The message with "--keys" for "spec.pair.key_length", "dense" for "DENSE",
// and so on.
std::string InFlags(absl::string_view message);

}  // namespace attnbias

#endif  // ATTNBIAS_CLIENT_CLI_WORDS_H_
