// SPDX-License-Identifier: Apache-2.0
// Fills the cache before the server is ready.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/executor.h"
#include "core/engine/engine.h"
#include "core/mount/registry.h"

namespace attnbias {

// Reads and plans a JSON array of attnbias.v1.TensorSpec in protobuf's JSON form. The specs may
// name tables in `tables`. Returns INVALID_ARGUMENT, naming the file and the entry, for anything
// else and for an invalid spec.
absl::StatusOr<std::vector<PlanPtr>> ReadPrecomputeFile(const std::string& path,
                                                        const Engine& engine,
                                                        const TableSet& tables);

// Computes the tensors one after another and stores them in the cache. An error names the entry.
// Returns CANCELLED if `caller` cancels.
absl::Status Precompute(const std::vector<PlanPtr>& plans, Engine* engine, const CallerPtr& caller);

}  // namespace attnbias
