// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/raw_stream.h"

#include <utility>

namespace attnbias {
namespace {

constexpr char kStreamTensor[] =
    "/attnbias.v1.AttentionBiasService/StreamTensor";

}  // namespace

RawStream::RawStream(grpc::GenericStub* stub,
                     const v1::StreamTensorRequest& request,
                     const Attempts& attempts) {
  attempts.Prepare(&context_);
  const grpc::Slice serialized(request.SerializeAsString());
  call_ = stub->PrepareCall(&context_, kStreamTensor, &queue_);
  call_->StartCall(nullptr);
  Wait();
  // A write to a call that failed already changes nothing: Finish tells why.
  call_->WriteLast(grpc::ByteBuffer(&serialized, 1), grpc::WriteOptions(),
                   nullptr);
  Wait();
  // Finish comes before the first Read: gRPC 1.83 reports a message that is too
  // large only to an operation that already waits for the status. Both would
  // receive the initial metadata, which can be received once.
  call_->ReadInitialMetadata(nullptr);
  Wait();
  call_->Finish(&status_, &status_);
}

RawStream::~RawStream() {
  context_.TryCancel();  // of no effect on a call that has ended
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

bool RawStream::Read(grpc::ByteBuffer* message) {
  call_->Read(message, nullptr);
  return Wait();
}

CallEnd RawStream::Finish() {
  if (!ended_) Wait(&status_);
  return CallEnd::Of(std::move(status_), context_);
}

bool RawStream::Wait(const void* wanted) {
  void* tag = nullptr;
  bool ok = false;
  do {
    queue_.Next(&tag, &ok);
    if (tag == &status_) ended_ = true;
  } while (tag != wanted);
  return ok;
}

}  // namespace attnbias
