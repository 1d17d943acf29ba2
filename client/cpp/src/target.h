// SPDX-License-Identifier: Apache-2.0
// Which server is meant: from what a user writes to a target of gRPC.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace attnbias {

// The target with port 50051 where a host has none. INVALID_ARGUMENT, naming
// `target`, for what names no server.
absl::StatusOr<std::string> TargetFrom(absl::string_view target);

// Each "host:port" of a target of TargetFrom; none if it has no port, as a
// file.
std::vector<std::string> HostsOf(absl::string_view target);

// Whether a target of TargetFrom is reached without a network.
bool IsOnThisMachine(absl::string_view target);

}  // namespace attnbias
