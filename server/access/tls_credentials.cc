// SPDX-License-Identifier: Apache-2.0
#include "server/access/tls_credentials.h"

#include <utility>

#include "grpc/grpc_security.h"
#include "proto/grpc_versions.h"

namespace attnbias {
namespace {

// gRPC's C++ classes take certificates once, or watch files themselves and
// drop what worked when a file is wrong. The C interface asks at each
// handshake.
class CurrentCertificates {
 public:
  explicit CurrentCertificates(
      std::function<std::shared_ptr<const Certificates>()> current)
      : current_(std::move(current)) {}

  // gRPC calls it from one thread at a time.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    auto& own = *static_cast<CurrentCertificates*>(self);
    std::shared_ptr<const Certificates> now = own.current_();
    if (now == own.given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    grpc_ssl_pem_key_cert_pair pair = {now->key.c_str(),
                                       now->certificate.c_str()};
    // gRPC wants something here also where it asks clients for nothing.
    const std::string& client_ca =
        now->client_ca.empty() ? now->certificate : now->client_ca;
    *config =
        grpc_ssl_server_certificate_config_create(client_ca.c_str(), &pair, 1);
    own.given_ = std::move(now);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

 private:
  const std::function<std::shared_ptr<const Certificates>()> current_;
  std::shared_ptr<const Certificates> given_;
};

grpc_ssl_client_certificate_request_type RequestType(
    const std::string& client_ca, ClientCertificate client_certificate) {
  if (client_ca.empty()) return GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
  return client_certificate == ClientCertificate::kRequired
             ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
             : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;
}

}  // namespace

std::shared_ptr<grpc::ServerCredentials> TlsCredentials(
    std::function<std::shared_ptr<const Certificates>()> current,
    ClientCertificate client_certificate) {
  const auto request = RequestType(current()->client_ca, client_certificate);
  auto state = std::make_shared<CurrentCertificates>(std::move(current));
  grpc_server_credentials* const credentials =
      grpc_ssl_server_credentials_create_with_options(
          grpc_ssl_server_credentials_create_options_using_config_fetcher(
              request, &CurrentCertificates::Fetch, state.get()));
  return CredentialsOfC(credentials, std::move(state));
}

}  // namespace attnbias
