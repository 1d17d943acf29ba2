// SPDX-License-Identifier: Apache-2.0
// A range of a payload over StreamTensor: begun, resumed where it broke,
// complete or an error.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "attnbias/v1/service.pb.h"
#include "client/cpp/src/attempts.h"
#include "client/cpp/src/call_group.h"
#include "client/cpp/src/chunk.h"
#include "client/cpp/src/payload.h"
#include "client/cpp/src/retry_state.h"

namespace attnbias {

// For one thread and one call of Run.
class Range {
 public:
  // Bytes [begin, end), or as many of them as there are; without an end all
  // that follow. Payload and group outlive this.
  Range(const v1::TensorSpec& spec, int64_t begin, std::optional<int64_t> end,
        Payload* payload, CallGroup* group);

  // Gives the error of the last attempt.
  absl::Status Run(grpc::GenericStub stub, Attempts attempts);

  // Whether the last attempt went on with a payload that was begun before it.
  bool HasGoneOn() const { return request_.read_offset() > 0; }

  // Of the attempt that completed it.
  double bytes_per_second() const { return bytes_per_second_; }

 private:
  // Runs one stream to its end. A broken message is an error here; how the
  // server ended the stream is in `call_end`.
  absl::Status Receive(grpc::GenericStub* stub, const Attempts& attempts,
                       CallEnd* call_end);
  // Finds the payload's memory by the header of the first message, whose data
  // stays to be read.
  absl::Status TakeHeader(grpc::ByteBuffer* message);
  absl::Status TakeData(const Chunk& chunk);
  bool IsComplete() const { return has_header_ && at_ == EndOfRange(); }
  int64_t EndOfRange() const;

  const std::optional<int64_t> end_;
  Payload& payload_;
  CallGroup& group_;

  v1::StreamTensorRequest request_;
  int64_t at_;
  double bytes_per_second_ = 0;
  // Of the stream that runs, and the payload's memory by it.
  bool has_header_ = false;
  absl::Span<std::byte> memory_;
};

}  // namespace attnbias
