// SPDX-License-Identifier: Apache-2.0
// SHA-256 of bytes, in one call or incrementally.
#pragma once

#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // OpenSSL's

namespace attnbias {

// Returns the SHA-256 of `bytes` as 64 lowercase hex characters.
std::string Sha256Hex(std::string_view bytes);

// Computes the same incrementally.
class Sha256 {
 public:
  Sha256();

  void Update(std::string_view bytes);
  // Called once, after all updates.
  std::string Hex();

 private:
  const std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

}  // namespace attnbias
