// SPDX-License-Identifier: Apache-2.0
// A payload on its way: its header, its memory, and how much of it has come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attnbias/client.h"
#include "attnbias/v1/service.pb.h"

namespace attnbias {

// Finds memory for a payload of header.total_bytes(). Called again when a
// download has to start afresh; the memory given before is then out of use.
using ReserveFn = std::function<absl::StatusOr<absl::Span<std::byte>>(
    const v1::TensorHeader& header)>;

// One thread begins it. Then any may take its other bytes.
class Payload {
 public:
  // `spec` and `progress` outlive this.
  Payload(const v1::TensorSpec& spec, int64_t max_tensor_bytes,
          ReserveFn reserve, const ProgressFn& progress);

  // All of its memory, by the header that comes before its byte `at`. Byte 0
  // begins it, or begins it afresh. DATA_LOSS if another one was begun, or if
  // this one is not what the request asks for.
  absl::StatusOr<absl::Span<std::byte>> Accept(v1::TensorHeader header,
                                               int64_t at);

  // So many bytes more are in their place. From one thread at a time.
  void Advance(int64_t count);

  // Of the payload that was begun.
  const v1::TensorHeader& header() const { return *header_; }

 private:
  const v1::TensorSpec& spec_;
  const int64_t max_tensor_bytes_;
  const ReserveFn reserve_;
  const ProgressFn& progress_;
  std::optional<v1::TensorHeader> header_;
  absl::Span<std::byte> memory_;
  int64_t received_ = 0;
};

}  // namespace attnbias
