// SPDX-License-Identifier: Apache-2.0
// Brings one payload into memory over StreamTensor: begun, resumed where it
// broke, complete or an error.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attnbias/client.h"
#include "attnbias/v1/service.pb.h"
#include "client/cpp/src/attempts.h"
#include "client/cpp/src/chunk.h"
#include "client/cpp/src/retry_state.h"

namespace attnbias {

// Finds memory for a payload of header.total_bytes(). Called again when a
// download has to start afresh; the memory given before is then out of use.
using ReserveFn = std::function<absl::StatusOr<absl::Span<std::byte>>(
    const v1::TensorHeader& header)>;

// For one thread and one call of Run.
class Download {
 public:
  // `progress` outlives this.
  Download(const v1::TensorSpec& spec, int64_t max_tensor_bytes,
           ReserveFn reserve, const ProgressFn& progress);

  // Returns the header once the payload is whole, or the error of the last
  // attempt.
  absl::StatusOr<v1::TensorHeader> Run(grpc::GenericStub stub,
                                       Attempts attempts);

 private:
  // Runs one stream to its end. A broken message is an error here; how the
  // server ended the stream is in `call_end`.
  absl::Status Receive(grpc::GenericStub* stub, const Attempts& attempts,
                       CallEnd* call_end);
  // Checks the header of the first message, whose data stays to be read. Finds
  // memory unless the payload was begun by an earlier stream.
  absl::Status TakeHeader(grpc::ByteBuffer* message);
  absl::Status TakeData(const Chunk& chunk);
  int64_t total_bytes() const { return static_cast<int64_t>(memory_.size()); }

  const int64_t max_tensor_bytes_;
  const ReserveFn reserve_;
  const ProgressFn& progress_;
  v1::StreamTensorRequest request_;

  // The payload that was begun.
  v1::TensorHeader header_;
  absl::Span<std::byte> memory_;
  int64_t at_ = 0;  // Bytes in their place.
  // True once the current stream has brought its header.
  bool has_header_ = false;
};

}  // namespace attnbias
