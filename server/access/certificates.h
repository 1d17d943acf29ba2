// SPDX-License-Identifier: Apache-2.0
// The certificates of TLS: what makes a set of PEM files usable, and gRPC's credentials for
// certificates that change.
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
  // The server's certificate and those above it, without the root.
  std::string certificate;
  // Of the certificate, not encrypted.
  std::string key;
  // Those that sign clients' certificates; empty where clients need none.
  std::string client_ca;

  bool empty() const { return certificate.empty(); }
  std::vector<std::string> paths() const;
};

// In PEM.
struct Certificates {
  std::string certificate;
  std::string key;
  std::string client_ca;
  // When the first of the chain expires.
  absl::Time expiry;
};

// Of the contents of files.paths(), in that order. INVALID_ARGUMENT, naming the file, for what is
// not PEM, a key that is encrypted or of another certificate, and a certificate that has expired.
absl::StatusOr<Certificates> CheckCertificates(const CertificateFiles& files,
                                               const std::vector<std::string>& contents);

// Whether clients have to show a certificate, where a CA for them is given.
enum class ClientCertificate { kRequired, kOptional };

// For a server: each new connection has the certificates that `current` gives then. TLS 1.2 and
// 1.3.
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(
    std::function<std::shared_ptr<const Certificates>()> current,
    ClientCertificate client_certificate);

}  // namespace attnbias
