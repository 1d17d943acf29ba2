// SPDX-License-Identifier: Apache-2.0
// Turns gRPC's status, google.rpc details included, into Abseil's.
#pragma once

#include <grpcpp/support/status.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "attnbias/client.h"

namespace attnbias {

// Same code, same message, made printable; the details become a payload. Where
// there is no connection at all, or the server does not take the caller for one
// that may, the message says what to try. The options' target and TLS are
// resolved.
absl::Status FromRpc(const grpc::Status& status, const ClientOptions& options,
                     bool has_token);

// The delay of google.rpc.RetryInfo, if the server sent one.
std::optional<absl::Duration> RetryDelay(const grpc::Status& status);

}  // namespace attnbias
