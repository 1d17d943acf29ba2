// SPDX-License-Identifier: Apache-2.0
// Waits for a callback's argument.
#pragma once

#include <future>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"

namespace attnbias {

// Returns what `begin(done)` passes to `done`, on any thread.
template <typename Result>
Result Await(absl::FunctionRef<void(absl::AnyInvocable<void(Result)>)> begin) {
  std::promise<Result> promise;
  begin([&promise](Result result) { promise.set_value(std::move(result)); });
  return promise.get_future().get();
}

}  // namespace attnbias
