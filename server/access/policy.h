// SPDX-License-Identifier: Apache-2.0
// Whose a bearer token is, and what callers may do, by name.
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

// A caller's name: 1 to 128 printable ASCII characters without spaces.
bool IsCallerName(std::string_view name);

// Only the digests of tokens are known here.
class Tokens {
 public:
  // Of a file of lines "NAME sha256:DIGEST", the digest that of the token in 64 lowercase
  // hexadecimal digits; empty lines and those that begin with # say nothing. A name may have
  // several tokens. INVALID_ARGUMENT, naming `path` and the line, for anything else, for a token of
  // two names, and for a file without tokens.
  static absl::StatusOr<Tokens> Parse(const std::string& path, std::string_view content);

  // Whose the token is; null where it is not known.
  const std::string* NameOf(std::string_view token) const;

 private:
  absl::flat_hash_map<std::string, std::string> names_by_digest_;
};

// Of one caller.
struct Rights {
  std::bitset<kNumMethods> methods;
  // What the names of mounted tables begin with that it may use.
  std::vector<std::string> table_prefixes;
  // What it may hold of the memory budget.
  double memory_share = 1;
  int64_t concurrent_calls = std::numeric_limits<int64_t>::max();
  double bytes_per_second = std::numeric_limits<double>::infinity();

  bool MayCall(Method method) const { return methods.test(static_cast<size_t>(method)); }

  static Rights All();
};

class Policy {
 public:
  // Of the JSON in the file `path`: see policy.proto. INVALID_ARGUMENT, naming path and place, for
  // anything else, and for a file that locks every caller out, as `{"callers": null}`.
  static absl::StatusOr<Policy> Parse(const std::string& path, const std::string& content);

  // Grants everybody everything.
  static Policy Everything();

  // Null for a name that may do nothing.
  std::shared_ptr<const Rights> Find(const std::string& name) const;

  // Whether the name has an entry of its own.
  bool Names(const std::string& name) const { return callers_.contains(name); }

 private:
  bool GrantsSomething() const;

  absl::flat_hash_map<std::string, std::shared_ptr<const Rights>> callers_;
  // Of names without an entry.
  std::shared_ptr<const Rights> others_;
};

}  // namespace attnbias
