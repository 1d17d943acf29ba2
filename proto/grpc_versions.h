// SPDX-License-Identifier: Apache-2.0
// Hides the differences between the versions of gRPC and Protobuf that this tree is built with:
// those in Debian 12 and 13, and the current ones.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "google/protobuf/util/json_util.h"
#include "grpc/grpc_security.h"
#include "grpcpp/security/server_credentials.h"

namespace attnbias {

// Wraps credentials from the C interface and takes ownership of them. `state`, which their
// callbacks use, is kept alive as long as the result.
std::shared_ptr<grpc::ServerCredentials> CredentialsOfC(
    grpc_server_credentials* credentials, std::shared_ptr<const void> state);

// Returns whether this version of gRPC still gets security fixes.
bool GrpcIsMaintained();

enum class LibraryLogLevel : uint8_t { kDebug, kWarning, kError };

// Calls `log` for each line that gRPC and Protobuf log from now on, on the
// thread that logs it, and keeps these lines off standard error.
void LogLibrariesBy(void (*log)(LibraryLogLevel level, std::string_view line));

// Includes fields without a value in the JSON, unless they have presence.
void PrintUnsetFields(google::protobuf::util::JsonPrintOptions* options);

}  // namespace attnbias
