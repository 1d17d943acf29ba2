// SPDX-License-Identifier: Apache-2.0
// Where core's work runs. Core starts no thread: whoever embeds it brings them.
#ifndef ATTNBIAS_CORE_BASE_EXECUTOR_H_
#define ATTNBIAS_CORE_BASE_EXECUTOR_H_

#include <cstdint>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace attnbias {

class Executor {
 public:
  virtual ~Executor() = default;

  // Runs `task` soon on some thread, never inside this call. False, without
  // running it, when no more work is taken.
  virtual bool Schedule(absl::AnyInvocable<void()> task) = 0;

  // Threads that run tasks; at least 1.
  virtual int num_threads() const = 0;
};

// Calls `body(i)` for every i in [0, count), on the calling thread and on
// whichever of the executor's are idle. Returns when all calls have.
void ParallelFor(Executor& executor, int64_t count,
                 absl::FunctionRef<void(int64_t)> body);

// The same until a call fails, after which no further one is begun; with the
// first error.
absl::Status TryParallelFor(Executor& executor, int64_t count,
                            absl::FunctionRef<absl::Status(int64_t)> body);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_BASE_EXECUTOR_H_
