// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cpp/src/small_file.h"

namespace attnbias {
namespace {

constexpr char kOn[] = "ATTNBIAS_CLIENT_TLS";
constexpr char kServerName[] = "ATTNBIAS_CLIENT_TLS_SERVER_NAME";

// What errors call the files.
struct Names {
  const char* ca;
  const char* cert;
  const char* key;
};
constexpr Names kOptions = {"tls.ca_file", "tls.cert_file", "tls.key_file"};
constexpr Names kVariables = {"ATTNBIAS_CLIENT_TLS_CA",
                              "ATTNBIAS_CLIENT_TLS_CERT",
                              "ATTNBIAS_CLIENT_TLS_KEY"};

// How often gRPC looks whether a file has changed.
constexpr unsigned int kSecondsBetweenLooks = 1;

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* value) const {
    Free(value);
  }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

absl::StatusOr<TlsOptions> TlsFromEnvironment() {
  const std::string on = Variable(kOn);
  if (!on.empty() && on != "0" && on != "1") {
    return absl::InvalidArgumentError(
        absl::StrCat(kOn, ": got \"", on, "\", want 1 or 0"));
  }
  TlsOptions tls = {.ca_file = Variable(kVariables.ca),
                    .cert_file = Variable(kVariables.cert),
                    .key_file = Variable(kVariables.key),
                    .server_name = Variable(kServerName)};
  const std::string said =
      absl::StrCat(tls.ca_file, tls.cert_file, tls.key_file, tls.server_name);
  tls.enabled = on == "1" || (on.empty() && !said.empty());
  return tls;
}

// Without a password OpenSSL would ask for one on the terminal.
int NoPassword(char*, int, int, void*) { return -1; }

absl::Status Refused(absl::string_view name, absl::string_view path,
                     absl::string_view want) {
  ERR_clear_error();  // gRPC looks at what this thread has in it
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": got \"", path, "\", want ", want));
}

// The first of a file.
absl::StatusOr<Certificate> ReadCertificate(const std::string& path,
                                            absl::string_view name) {
  const absl::StatusOr<std::string> pem = ReadSmallFile(path, name);
  if (!pem.ok()) return pem.status();
  const Bio bio(BIO_new_mem_buf(pem->data(), static_cast<int>(pem->size())));
  Certificate certificate(
      PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr));
  if (certificate != nullptr) return certificate;
  return Refused(name, path, "a PEM file with certificates");
}

absl::Status CheckPair(const TlsOptions& tls, const Names& names) {
  if (tls.key_file.empty()) {
    return Refused(names.cert, tls.cert_file,
                   absl::StrCat(names.key, " beside it"));
  }
  if (tls.cert_file.empty()) {
    return Refused(names.key, tls.key_file,
                   absl::StrCat(names.cert, " beside it"));
  }
  const absl::StatusOr<Certificate> certificate =
      ReadCertificate(tls.cert_file, names.cert);
  if (!certificate.ok()) return certificate.status();
  const absl::StatusOr<std::string> pem =
      ReadSmallFile(tls.key_file, names.key);
  if (!pem.ok()) return pem.status();
  const Bio bio(BIO_new_mem_buf(pem->data(), static_cast<int>(pem->size())));
  const Key key(
      PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
  if (key != nullptr &&
      X509_check_private_key(certificate->get(), key.get()) == 1) {
    return absl::OkStatus();
  }
  return Refused(names.key, tls.key_file,
                 absl::StrCat("the PEM file, not encrypted, of the key of \"",
                              tls.cert_file, "\""));
}

absl::Status CheckFiles(const TlsOptions& tls, const Names& names) {
  if (!tls.ca_file.empty()) {
    const auto certificate = ReadCertificate(tls.ca_file, names.ca);
    if (!certificate.ok()) return certificate.status();
  }
  if (tls.cert_file.empty() && tls.key_file.empty()) return absl::OkStatus();
  return CheckPair(tls, names);
}

}  // namespace

absl::StatusOr<TlsOptions> TlsFrom(const std::optional<TlsOptions>& options) {
  absl::StatusOr<TlsOptions> tls =
      options.has_value() ? *options : TlsFromEnvironment();
  if (!tls.ok() || !tls->enabled) return tls;
  const Names& names = options.has_value() ? kOptions : kVariables;
  if (absl::Status status = CheckFiles(*tls, names); !status.ok()) {
    return status;
  }
  return tls;
}

std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const TlsOptions& tls) {
  if (!tls.enabled) return grpc::InsecureChannelCredentials();
  grpc::experimental::TlsChannelCredentialsOptions options;
  if (!tls.ca_file.empty()) options.watch_root_certs();
  if (!tls.cert_file.empty()) options.watch_identity_key_cert_pairs();
  if (!tls.ca_file.empty() || !tls.cert_file.empty()) {
    options.set_certificate_provider(
        std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
            tls.key_file, tls.cert_file, tls.ca_file, kSecondsBetweenLooks));
  }
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace attnbias
