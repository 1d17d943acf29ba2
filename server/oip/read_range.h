// SPDX-License-Identifier: Apache-2.0
// More of a payload than is read in one turn.
#ifndef ATTNBIAS_SERVER_OIP_READ_RANGE_H_
#define ATTNBIAS_SERVER_OIP_READ_RANGE_H_

#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "core/base/caller.h"
#include "core/base/executor.h"
#include "core/engine/payload.h"
#include "core/tensor/range.h"

namespace attnbias {

// Gives the payload's `bytes`, in order, to `done`: inside this call or on a
// thread of the executor, which others have in between. With the errors of
// Payload::Read. All outlive it.
void ReadRange(
    Payload* payload, Range bytes, Executor* executor, const CallerPtr& caller,
    absl::AnyInvocable<void(absl::StatusOr<std::vector<Chunk>>)> done);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_OIP_READ_RANGE_H_
