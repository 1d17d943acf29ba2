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
                     const Attempts& attempts, CallGroup* group)
    : group_(*group) {
  attempts.Prepare(&context_);
  group_.Add(&context_);
  const grpc::Slice serialized(request.SerializeAsString());
  call_ = stub->PrepareCall(&context_, kStreamTensor, &queue_);
  call_->StartCall(nullptr);
  Wait();
  // A write to a call that failed already changes nothing: Finish tells why.
  call_->WriteLast(grpc::ByteBuffer(&serialized, 1), grpc::WriteOptions(),
                   nullptr);
  Wait();
}

RawStream::~RawStream() {
  if (!finished_) {
    context_.TryCancel();
    Finish();
  }
  group_.Remove(&context_);
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
  grpc::Status status;
  call_->Finish(&status, nullptr);
  Wait();
  finished_ = true;
  return CallEnd::Of(std::move(status), context_);
}

bool RawStream::Wait() {
  void* tag = nullptr;
  bool ok = false;
  return queue_.Next(&tag, &ok) && ok;
}

}  // namespace attnbias
