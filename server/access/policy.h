// SPDX-License-Identifier: Apache-2.0
// Names of callers by bearer token, and rights by name.
#pragma once

#include <bitset>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "server/observe/metrics.h"

namespace attnbias {

// Knows only the digests of tokens.
class Tokens {
 public:
  // Parses lines "NAME sha256:DIGEST", the token's digest in 64 lowercase hexadecimal digits.
  // Ignores empty lines and those that begin with #. A name may have several tokens. Returns
  // INVALID_ARGUMENT, naming `path` and the line, for anything else, for a token with two names,
  // and for a file without tokens.
  static absl::StatusOr<Tokens> Parse(const std::string& path, std::string_view content);

  // Returns the name of the token's caller; null if the token is unknown.
  const std::string* NameOf(std::string_view token) const;

 private:
  absl::flat_hash_map<std::string, std::string> names_by_digest_;
};

// Rights of one caller.
struct Rights {
  std::bitset<kNumMethods> methods;
  // Prefixes of the names of mounted tables that the caller may use.
  std::vector<std::string> table_prefixes;
  // Share of the memory budget.
  double memory_share = 1;
  int64_t concurrent_calls = std::numeric_limits<int64_t>::max();
  double bytes_per_second = std::numeric_limits<double>::infinity();

  bool MayCall(Method method) const { return methods.test(static_cast<size_t>(method)); }
};

class Policy {
 public:
  // Parses the JSON of policy.proto. Returns INVALID_ARGUMENT, naming `path` and the location, for
  // anything else, and for a file that locks every caller out, such as `{"callers": null}`.
  static absl::StatusOr<Policy> Parse(const std::string& path, const std::string& content);

  // Grants every caller everything.
  static Policy Everything();

  // Returns null for a name without rights.
  std::shared_ptr<const Rights> Find(const std::string& name) const;

  // Returns whether the name has its own entry.
  bool Names(const std::string& name) const;

 private:
  // Names without an entry have the rights of "*".
  absl::flat_hash_map<std::string, std::shared_ptr<const Rights>> callers_;
};

}  // namespace attnbias
