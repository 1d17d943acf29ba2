// SPDX-License-Identifier: Apache-2.0
// Converts server names, as users write them, to gRPC targets.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace attnbias {

// Returns the target, with port 50051 for hosts that have none. INVALID_ARGUMENT if `target` is
// invalid.
absl::StatusOr<std::string> TargetFrom(absl::string_view target);

// Returns each "host:port" in a target from TargetFrom; none if the target has no port, such as a
// socket file.
std::vector<std::string> HostsOf(absl::string_view target);

// Returns true if a target from TargetFrom can be reached without a network.
bool IsOnThisMachine(absl::string_view target);

}  // namespace attnbias
