// SPDX-License-Identifier: Apache-2.0
// gRPC's credentials for certificates that change.
#ifndef ATTNBIAS_SERVER_ACCESS_TLS_CREDENTIALS_H_
#define ATTNBIAS_SERVER_ACCESS_TLS_CREDENTIALS_H_

#include <functional>
#include <memory>

#include "grpcpp/security/server_credentials.h"
#include "server/access/certificates.h"

namespace attnbias {

// Whether clients have to show a certificate, where a CA for them is given.
enum class ClientCertificate { kRequired, kOptional };

// For a server: each new connection has the certificates that `current` gives
// then. TLS 1.2 and 1.3.
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(
    std::function<std::shared_ptr<const Certificates>()> current,
    ClientCertificate client_certificate);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_ACCESS_TLS_CREDENTIALS_H_
