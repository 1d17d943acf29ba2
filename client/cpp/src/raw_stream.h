// SPDX-License-Identifier: Apache-2.0
// One StreamTensor call whose messages stay as gRPC received them, in slices,
// so that payload is copied once and never through a protobuf message.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>

#include "attnbias/v1/service.pb.h"
#include "client/cpp/src/attempts.h"
#include "client/cpp/src/retry_state.h"

namespace attnbias {

// For one thread. The call is cancelled if this ends before it does.
class RawStream {
 public:
  // `stub` outlives this.
  RawStream(grpc::GenericStub* stub, const v1::StreamTensorRequest& request,
            const Attempts& attempts);
  ~RawStream();

  RawStream(const RawStream&) = delete;
  RawStream& operator=(const RawStream&) = delete;

  // The next message; false at the end of the stream, whatever ended it.
  bool Read(grpc::ByteBuffer* message);

  // How the call ended. Once, after Read returned false.
  CallEnd Finish();

 private:
  // Waits for the operation with that tag; false if it failed. Only the
  // operation that receives the status has one, and is in flight with others.
  bool Wait(const void* tag = nullptr);

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::Status status_;  // and the tag of the operation that receives it
  bool ended_ = false;
};

}  // namespace attnbias
