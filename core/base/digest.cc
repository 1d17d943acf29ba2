// SPDX-License-Identifier: Apache-2.0
#include "core/base/digest.h"

#include <openssl/evp.h>

#include <bit>
#include <iterator>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace attnbias {
namespace {

void AppendLittleEndian(uint64_t value, int bytes, std::string& out) {
  for (int i = 0; i < bytes; ++i) {
    out.push_back(static_cast<char>(value >> (8 * i)));
  }
}

// Adding a positive zero turns -0 into 0 and changes nothing else.
uint64_t BitsOf(double value) { return std::bit_cast<uint64_t>(value + 0.0); }

}  // namespace

// Each variable-length value is preceded by its length, so that different sequences of calls never
// produce the same bytes.
CanonicalWriter::CanonicalWriter(std::string_view domain, uint32_t numerics_version) {
  AppendLittleEndian(domain.size(), 4, bytes_);
  bytes_.append(domain);
  AppendLittleEndian(numerics_version, 4, bytes_);
}

void CanonicalWriter::Field(int field, uint64_t value) {
  AppendLittleEndian(static_cast<uint32_t>(field), 4, bytes_);
  AppendLittleEndian(value, 8, bytes_);
}

void CanonicalWriter::Integer(int field, int64_t value, int64_t default_value) {
  if (value != default_value) Field(field, static_cast<uint64_t>(value));
}

void CanonicalWriter::Real(int field, double value, double default_value) {
  if (value != default_value) Field(field, BitsOf(value));
}

void CanonicalWriter::Reals(int field, absl::Span<const double> values) {
  Integer(field, std::ssize(values));
  for (const double value : values) AppendLittleEndian(BitsOf(value), 8, bytes_);
}

void CanonicalWriter::Integers(int field, absl::Span<const int64_t> values) {
  Integer(field, std::ssize(values));
  for (const int64_t value : values) AppendLittleEndian(static_cast<uint64_t>(value), 8, bytes_);
}

void CanonicalWriter::Bytes(int field, std::string_view value) {
  Integer(field, std::ssize(value));
  bytes_.append(value);
}

Sha256::Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
  EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
}

void Sha256::Update(std::string_view bytes) {
  EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
}

std::string Sha256::Hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(context_.get(), digest, &size);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
}

std::string Sha256Hex(std::string_view bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.Hex();
}

}  // namespace attnbias
