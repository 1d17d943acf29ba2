// SPDX-License-Identifier: Apache-2.0
// Checks PEM files, and makes gRPC credentials from certificates that may change.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/security/server_credentials.h"

namespace attnbias {

// Paths of PEM files: the values of --tls-cert, --tls-key and --tls-client-ca.
struct CertificateFiles {
  // The server's certificate and its issuers' certificates, without the root.
  std::string certificate;
  std::string key;
  // CA certificates for verifying clients; may be empty.
  std::string client_ca;

  bool empty() const { return certificate.empty(); }
};

// Contents of the files, in PEM.
struct Certificates {
  std::string certificate;
  std::string key;
  std::string client_ca;
  // Expiry of the server's certificate.
  absl::Time expiry;
};

// Checks the contents of the files, which are in the order of the fields in CertificateFiles.
// Returns INVALID_ARGUMENT, naming the file, for invalid PEM, a key that is encrypted or belongs to
// another certificate, or an expired certificate.
absl::StatusOr<Certificates> CheckCertificates(const CertificateFiles& files,
                                               const std::vector<std::string>& contents);

// Makes server credentials for TLS 1.2 and 1.3. `current` is called for each new connection. If
// there is a client CA, clients may present a certificate; if `requires_certificate`, they must.
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(
    std::function<std::shared_ptr<const Certificates>()> current, bool requires_certificate);

}  // namespace attnbias
