// SPDX-License-Identifier: Apache-2.0
#include "server/access/tls_credentials.h"

#include <utility>

#include "grpc/grpc.h"
#include "grpc/grpc_security.h"

namespace attnbias {
namespace {

// gRPC's C++ classes take certificates once, or watch files themselves and
// drop what worked when a file is wrong. The C interface asks at each
// handshake.
class AskingCredentials final : public grpc::ServerCredentials {
 public:
  AskingCredentials(
      std::function<std::shared_ptr<const Certificates>()> current,
      ClientCertificate client_certificate)
      : current_(std::move(current)),
        credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                RequestType(current_()->client_ca, client_certificate), &Fetch,
                this))) {}

  ~AskingCredentials() override {
    grpc_server_credentials_release(credentials_);
  }

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/)
      override {}

 private:
  static grpc_ssl_client_certificate_request_type RequestType(
      const std::string& client_ca, ClientCertificate client_certificate) {
    if (client_ca.empty()) return GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
    return client_certificate == ClientCertificate::kRequired
               ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
               : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;
  }

  // gRPC calls it from one thread at a time.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    auto& own = *static_cast<AskingCredentials*>(self);
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

  int AddPortToServer(const std::string& address,
                      grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  const std::function<std::shared_ptr<const Certificates>()> current_;
  grpc_server_credentials* const credentials_;
  std::shared_ptr<const Certificates> given_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> TlsCredentials(
    std::function<std::shared_ptr<const Certificates>()> current,
    ClientCertificate client_certificate) {
  return std::make_shared<AskingCredentials>(std::move(current),
                                             client_certificate);
}

}  // namespace attnbias
