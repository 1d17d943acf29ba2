// SPDX-License-Identifier: Apache-2.0
// What a client sends beside its request.
#pragma once

#include <iterator>
#include <map>
#include <string_view>

#include "grpcpp/support/string_ref.h"

namespace attnbias {

using ClientMetadata = std::multimap<grpc::string_ref, grpc::string_ref>;

// The one value of `key`, part of `metadata`; empty where it has none or
// several.
inline std::string_view OnlyValue(const ClientMetadata& metadata,
                                  const char* key) {
  const auto [begin, end] = metadata.equal_range(key);
  if (begin == end || std::next(begin) != end) return "";
  return {begin->second.data(), begin->second.size()};
}

}  // namespace attnbias
