// SPDX-License-Identifier: Apache-2.0
// Canonical bytes for cache keys and fingerprints, and SHA-256 digests.
//
// Serialized protobuf is not canonical. Here each field is written as its number followed by its
// fixed-width little-endian value, in ascending order of field number. A field equal to its default
// is omitted, so that adding a field does not change older fingerprints.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/types/span.h"

struct evp_md_ctx_st;  // OpenSSL's

namespace attnbias {

class CanonicalWriter {
 public:
  // `domain` separates unrelated identities; `numerics_version` changes when an unchanged spec
  // starts to produce different values.
  CanonicalWriter(std::string_view domain, uint32_t numerics_version);

  // These functions write nothing if `value` equals `default_value`. -0.0 counts as 0.0; NaN is not
  // allowed.
  void Integer(int field, int64_t value, int64_t default_value = 0);
  void Real(int field, double value, double default_value = 0);
  void Reals(int field, absl::Span<const double> values);
  void Integers(int field, absl::Span<const int64_t> values);
  void Bytes(int field, std::string_view value);

  const std::string& bytes() const { return bytes_; }

 private:
  void Field(int field, uint64_t value);

  std::string bytes_;
};

// Returns the SHA-256 of `bytes` as 64 lowercase hex characters.
std::string Sha256Hex(std::string_view bytes);

// Computes a SHA-256 digest incrementally.
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
