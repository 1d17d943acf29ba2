// SPDX-License-Identifier: Apache-2.0
#include "server/access/certificates.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "core/base/errors.h"
#include "grpc/grpc_security.h"
#include "proto/grpc_versions.h"

namespace attnbias {
namespace {

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

Owned<BIO> Bytes(const std::string& content) {
  return Owned<BIO>(BIO_new_mem_buf(content.data(), static_cast<int>(content.size())));
}

// Returns the certificates in a PEM file, which must contain at least one.
absl::StatusOr<std::vector<Owned<X509>>> ReadCertificates(const std::string& path,
                                                          const std::string& content) {
  const Owned<BIO> bytes = Bytes(content);
  std::vector<Owned<X509>> chain;
  while (X509* const next = PEM_read_bio_X509(bytes.get(), nullptr, nullptr, nullptr)) {
    chain.emplace_back(next);
  }
  // OpenSSL also reports the end of the file as an error.
  const bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (chain.empty() || !ended) {
    return Invalid(path, ": got unrecognized content, want certificates in PEM");
  }
  return chain;
}

absl::StatusOr<Owned<EVP_PKEY>> ReadKey(const std::string& path, const std::string& content) {
  // Without a callback, OpenSSL prompts for a passphrase on the terminal.
  bool encrypted = false;
  const auto refuse = [](char*, int, int, void* asked) {
    *static_cast<bool*>(asked) = true;
    return -1;
  };
  Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(Bytes(content).get(), nullptr, +refuse, &encrypted));
  ERR_clear_error();
  if (encrypted) return Invalid(path, ": got an encrypted key, want an unencrypted key");
  if (key == nullptr) {
    return Invalid(path, ": got unrecognized content, want a private key in PEM");
  }
  return key;
}

absl::StatusOr<absl::Time> ExpiryOf(const std::string& path, const X509& certificate) {
  tm parts = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(&certificate), &parts) != 1) {
    return Invalid(path, ": the certificate has no expiry date");
  }
  return absl::FromTM(parts, absl::UTCTimeZone());
}

// Provides gRPC with certificates at each handshake. gRPC's C++ classes either accept certificates
// only once, or watch the files and drop good certificates when a file becomes invalid.
struct CurrentCertificates {
  std::function<std::shared_ptr<const Certificates>()> current;
  std::shared_ptr<const Certificates> given;

  // gRPC calls this from one thread at a time.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    auto& own = *static_cast<CurrentCertificates*>(self);
    std::shared_ptr<const Certificates> now = own.current();
    if (now == own.given) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    grpc_ssl_pem_key_cert_pair pair = {now->key.c_str(), now->certificate.c_str()};
    // gRPC needs a value even if it requests no client certificate.
    const std::string& client_ca = now->client_ca.empty() ? now->certificate : now->client_ca;
    *config = grpc_ssl_server_certificate_config_create(client_ca.c_str(), &pair, 1);
    own.given = std::move(now);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }
};

}  // namespace

absl::StatusOr<Certificates> CheckCertificates(const CertificateFiles& files,
                                               const std::vector<std::string>& contents) {
  Certificates made;
  made.certificate = contents[0];
  made.key = contents[1];
  ATTNBIAS_ASSIGN_OR_RETURN(const auto chain,
                            ReadCertificates(files.certificate, made.certificate));
  ATTNBIAS_ASSIGN_OR_RETURN(const auto key, ReadKey(files.key, made.key));
  const bool match = X509_check_private_key(chain.front().get(), key.get()) == 1;
  ERR_clear_error();
  if (!match) {
    return Invalid(files.key, ": the key does not match the certificate in ", files.certificate);
  }
  ATTNBIAS_ASSIGN_OR_RETURN(made.expiry, ExpiryOf(files.certificate, *chain.front()));
  if (made.expiry <= absl::Now()) {
    return Invalid(files.certificate, ": the certificate expired on ",
                   absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", made.expiry, absl::UTCTimeZone()));
  }
  if (contents.size() > 2) {
    made.client_ca = contents[2];
    ATTNBIAS_RETURN_IF_ERROR(ReadCertificates(files.client_ca, made.client_ca).status());
  }
  return made;
}

std::shared_ptr<grpc::ServerCredentials> TlsCredentials(
    std::function<std::shared_ptr<const Certificates>()> current, bool requires_certificate) {
  auto request = GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
  if (!current()->client_ca.empty()) {
    request = requires_certificate ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                   : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;
  }
  auto state = std::make_shared<CurrentCertificates>();
  state->current = std::move(current);
  grpc_server_credentials* const credentials = grpc_ssl_server_credentials_create_with_options(
      grpc_ssl_server_credentials_create_options_using_config_fetcher(
          request, &CurrentCertificates::Fetch, state.get()));
  return CredentialsOfC(credentials, std::move(state));
}

}  // namespace attnbias
