// SPDX-License-Identifier: Apache-2.0
#include "server/request_pump.h"

#include <cstdint>
#include <utility>

namespace attnbias {

void RequestPump::Start() {
  absl::Status status = call_.CheckWanted();
  if (status.ok()) status = call_.Admit(0);
  if (!status.ok()) {
    End(status);
    return;
  }
  StartRead(&incoming_.bytes);
  mutex_.Lock();
  ProceedAndUnlock();
}

void RequestPump::OnReadDone(bool ok) {
  if (ok) HoldIncoming();
  mutex_.Lock();
  if (ok) {
    asked_ = waiting_ = true;
  } else {
    half_closed_ = true;
    if (call_.context().IsCancelled()) status_.Update(call_.WhyCancelled());
    if (!asked_) status_.Update(NoRequest());
  }
  ProceedAndUnlock();
}

// What was read counts against the budget until it has been worked on.
void RequestPump::HoldIncoming() {
  auto memory = call_.environment().engine.Reserve(
      static_cast<int64_t>(incoming_.bytes.Length()), *caller_);
  if (memory.ok()) {
    incoming_.memory = *std::move(memory);
  } else {
    incoming_ = {.held = memory.status()};
  }
}

RequestPump::Incoming RequestPump::TakeRequest() {
  Incoming taken = std::exchange(incoming_, Incoming());
  mutex_.Lock();
  waiting_ = false;
  mutex_.Unlock();
  // Make keeps the call from ending while gRPC is being told to.
  StartRead(&incoming_.bytes);
  return taken;
}

}  // namespace attnbias
