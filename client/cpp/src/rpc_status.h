// SPDX-License-Identifier: Apache-2.0
// Turns gRPC's status, google.rpc details included, into Abseil's.
#ifndef ATTNBIAS_CLIENT_CPP_SRC_RPC_STATUS_H_
#define ATTNBIAS_CLIENT_CPP_SRC_RPC_STATUS_H_

#include <grpcpp/support/status.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace attnbias {

// Same code, same message; the details become a payload. Where there is no
// connection to `target` at all, the message says what to try.
absl::Status FromRpc(const grpc::Status& status, absl::string_view target);

// The delay of google.rpc.RetryInfo, if the server sent one.
std::optional<absl::Duration> RetryDelay(const grpc::Status& status);

}  // namespace attnbias

#endif  // ATTNBIAS_CLIENT_CPP_SRC_RPC_STATUS_H_
