// SPDX-License-Identifier: Apache-2.0
// Bearer tokens: which of them there are, and whose. Only their digests are
// known here.
#ifndef ATTNBIAS_SERVER_ACCESS_TOKENS_H_
#define ATTNBIAS_SERVER_ACCESS_TOKENS_H_

#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace attnbias {

// A caller's name: 1 to 128 printable ASCII characters without spaces.
bool IsCallerName(std::string_view name);

class Tokens {
 public:
  // Of a file of lines "NAME sha256:DIGEST", the digest that of the token in 64
  // lowercase hexadecimal digits; empty lines and those that begin with # say
  // nothing. A name may have several tokens. INVALID_ARGUMENT, naming `path`
  // and the line, for anything else, for a token of two names, and for a file
  // without tokens.
  static absl::StatusOr<Tokens> Parse(const std::string& path,
                                      std::string_view content);

  // Whose the token is; null where it is not known.
  const std::string* NameOf(std::string_view token) const;

 private:
  absl::flat_hash_map<std::string, std::string> names_by_digest_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_ACCESS_TOKENS_H_
