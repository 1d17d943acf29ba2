// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/payload.h"

#include <utility>

#include "client/cpp/src/header_check.h"

namespace attnbias {

Payload::Payload(const v1::TensorSpec& spec, int64_t max_tensor_bytes,
                 ReserveFn reserve, const ProgressFn& progress)
    : spec_(spec),
      max_tensor_bytes_(max_tensor_bytes),
      reserve_(std::move(reserve)),
      progress_(progress) {}

absl::StatusOr<absl::Span<std::byte>> Payload::Accept(v1::TensorHeader header,
                                                      int64_t at) {
  if (at > 0) {
    absl::Status status = CheckSame(header, *header_);
    if (!status.ok()) return status;
    return memory_;
  }
  if (absl::Status status = CheckHeader(header, spec_, max_tensor_bytes_);
      !status.ok()) {
    return status;
  }
  header_ = std::move(header);
  received_ = 0;
  auto memory = reserve_(*header_);
  if (!memory.ok()) return memory.status();
  memory_ = memory->subspan(0, static_cast<size_t>(header_->total_bytes()));
  return memory_;
}

void Payload::Advance(int64_t count) {
  received_ += count;
  if (progress_) progress_(received_, header_->total_bytes());
}

}  // namespace attnbias
