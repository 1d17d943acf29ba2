// SPDX-License-Identifier: Apache-2.0
// Why a client has no connection to its server, and what to try.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "absl/strings/string_view.h"
#include "attnbias/client.h"

namespace attnbias {

// Returns true if gRPC reports that no address of the target is reachable.
bool IsUnreached(const grpc::Status& status);

// Names the target, the reason and what to try, by gRPC's report on the last
// address. The options' target and TLS are resolved.
std::string WhyUnreached(absl::string_view report,
                         const ClientOptions& options);

// The same by reports on all addresses, each of which is asked if there are
// several: the most telling reason, and after it that of each address. Takes at
// most 3 s.
std::string WhyAllUnreached(absl::string_view report,
                            const ClientOptions& options);

}  // namespace attnbias
