// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/security.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace attnbias {
namespace {

// Bounds reads from an endless device. A certificate or a token has a few thousand bytes.
constexpr size_t kMostBytes = 1 << 20;

// Reads a file. INVALID_ARGUMENT names the option `name`.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, absl::string_view name) {
  const std::unique_ptr<std::FILE, decltype(&std::fclose)> file(std::fopen(path.c_str(), "rbe"),
                                                                &std::fclose);
  std::string bytes;
  if (file != nullptr) {
    char block[4096];
    while (const size_t size = std::fread(block, 1, sizeof(block), file.get())) {
      bytes.append(block, size);
      if (bytes.size() > kMostBytes) {
        return absl::InvalidArgumentError(
            absl::StrCat(name, ": \"", path, "\" has more than ", kMostBytes, " bytes"));
      }
    }
    if (std::ferror(file.get()) == 0) return bytes;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": cannot read \"", path, "\": ", std::generic_category().message(errno)));
}

constexpr char kOn[] = "ATTNBIAS_CLIENT_TLS";
constexpr char kServerName[] = "ATTNBIAS_CLIENT_TLS_SERVER_NAME";

// Names by which errors refer to the files.
struct Names {
  const char* ca;
  const char* cert;
  const char* key;
};
constexpr Names kOptions = {"tls.ca_file", "tls.cert_file", "tls.key_file"};
constexpr Names kVariables = {"ATTNBIAS_CLIENT_TLS_CA", "ATTNBIAS_CLIENT_TLS_CERT",
                              "ATTNBIAS_CLIENT_TLS_KEY"};

// Interval at which gRPC checks files for changes.
constexpr unsigned int kSecondsBetweenLooks = 1;

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* value) const {
    Free(value);
  }
};
using Bio = std::unique_ptr<BIO, Deleter<BIO_free>>;
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

absl::StatusOr<TlsOptions> TlsFromEnvironment() {
  const std::string on = Variable(kOn);
  if (!on.empty() && on != "0" && on != "1") {
    return absl::InvalidArgumentError(absl::StrCat(kOn, ": got \"", on, "\", want 1 or 0"));
  }
  TlsOptions tls = {.ca_file = Variable(kVariables.ca),
                    .cert_file = Variable(kVariables.cert),
                    .key_file = Variable(kVariables.key),
                    .server_name = Variable(kServerName)};
  const std::string said = absl::StrCat(tls.ca_file, tls.cert_file, tls.key_file, tls.server_name);
  tls.enabled = on == "1" || (on.empty() && !said.empty());
  return tls;
}

// Keeps OpenSSL from asking for a password on the terminal.
int NoPassword(char*, int, int, void*) { return -1; }

absl::Status Refused(absl::string_view name, absl::string_view path, absl::string_view want) {
  ERR_clear_error();  // gRPC reads this thread's errors
  return absl::InvalidArgumentError(absl::StrCat(name, ": got \"", path, "\", want ", want));
}

// Reads the first certificate in a file.
absl::StatusOr<Certificate> ReadCertificate(const std::string& path, absl::string_view name) {
  const absl::StatusOr<std::string> pem = ReadSmallFile(path, name);
  if (!pem.ok()) return pem.status();
  const Bio bio(BIO_new_mem_buf(pem->data(), static_cast<int>(pem->size())));
  Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr));
  if (certificate != nullptr) return certificate;
  return Refused(name, path, "a PEM file with certificates");
}

absl::Status CheckFiles(const TlsOptions& tls, const Names& names) {
  if (!tls.ca_file.empty()) {
    const auto certificate = ReadCertificate(tls.ca_file, names.ca);
    if (!certificate.ok()) return certificate.status();
  }
  if (tls.cert_file.empty() && tls.key_file.empty()) return absl::OkStatus();
  if (tls.key_file.empty()) {
    return Refused(names.cert, tls.cert_file, absl::StrCat(names.key, " with it"));
  }
  if (tls.cert_file.empty()) {
    return Refused(names.key, tls.key_file, absl::StrCat(names.cert, " with it"));
  }
  const absl::StatusOr<Certificate> certificate = ReadCertificate(tls.cert_file, names.cert);
  if (!certificate.ok()) return certificate.status();
  const absl::StatusOr<std::string> pem = ReadSmallFile(tls.key_file, names.key);
  if (!pem.ok()) return pem.status();
  const Bio bio(BIO_new_mem_buf(pem->data(), static_cast<int>(pem->size())));
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
  if (key != nullptr && X509_check_private_key(certificate->get(), key.get()) == 1) {
    return absl::OkStatus();
  }
  return Refused(names.key, tls.key_file,
                 absl::StrCat("an unencrypted PEM file with the key for \"", tls.cert_file, "\""));
}

constexpr char kTokenVariable[] = "ATTNBIAS_CLIENT_TOKEN";
constexpr char kTokenFileVariable[] = "ATTNBIAS_CLIENT_TOKEN_FILE";

}  // namespace

absl::StatusOr<TlsOptions> TlsFrom(const std::optional<TlsOptions>& options) {
  absl::StatusOr<TlsOptions> tls = options.has_value() ? *options : TlsFromEnvironment();
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

absl::StatusOr<std::unique_ptr<BearerToken>> BearerToken::From(const ClientOptions& options) {
  std::string path = options.token_file.value_or("");
  std::string token = options.token.value_or("");
  std::string name = path.empty() ? "token" : "token_file";
  if (!path.empty() && !token.empty()) {
    return absl::InvalidArgumentError("token: given together with token_file, want one of the two");
  }
  if (absl::c_any_of(options.metadata, [](const auto& pair) {
        return absl::EqualsIgnoreCase(pair.first, "authorization");
      })) {
    if (path.empty() && token.empty()) return nullptr;
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": given together with \"authorization\" in metadata, want one of the two"));
  }
  if (!options.token.has_value() && !options.token_file.has_value()) {
    path = Variable(kTokenFileVariable);
    token = path.empty() ? Variable(kTokenVariable) : "";
    name = path.empty() ? kTokenVariable : kTokenFileVariable;
  }
  if (path.empty() && token.empty()) return nullptr;
  std::unique_ptr<BearerToken> made(new BearerToken(name, path, token));
  if (absl::Status status = made->Read(); !status.ok()) return status;
  return made;
}

std::string BearerToken::Authorization() {
  const std::lock_guard lock(mutex_);
  if (!path_.empty()) Read().IgnoreError();
  return absl::StrCat("Bearer ", token_);
}

absl::Status BearerToken::Read() {
  std::string text = token_;
  std::string got = "text that is not";
  if (!path_.empty()) {
    absl::StatusOr<std::string> file = ReadSmallFile(path_, name_);
    if (!file.ok()) return file.status();
    text = std::string(absl::StripAsciiWhitespace(*file));
    got = absl::StrCat("\"", path_, "\", which does not hold");
  }
  if (text.empty() || !absl::c_all_of(text, absl::ascii_isgraph)) {
    return absl::InvalidArgumentError(absl::StrCat(
        name_, ": got ", got, " a token; want visible ASCII characters, without spaces"));
  }
  token_ = std::move(text);
  return absl::OkStatus();
}

}  // namespace attnbias
