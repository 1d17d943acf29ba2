// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/download.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/src/attempts.h"
#include "client/cpp/src/chunk.h"
#include "client/cpp/src/expected.h"

namespace attnbias {
namespace {

constexpr char kStreamTensor[] =
    "/attnbias.v1.AttentionBiasService/StreamTensor";

// From here on a payload is out of the last caches before it is read. Measured
// over loopback, copying past them then saves a fifth of the client's time.
constexpr int64_t kStreamedBytes = 16 << 20;

// One call whose messages stay as gRPC received them, in slices, so that
// payload is copied once and never through a protobuf message. For one thread.
// The call is cancelled if this ends before it does.
class RawStream {
 public:
  RawStream(const std::shared_ptr<grpc::Channel>& channel,
            const v1::StreamTensorRequest& request, const Attempts& attempts)
      : stub_(channel) {
    attempts.Prepare(&context_);
    const grpc::Slice serialized(request.SerializeAsString());
    call_ = stub_.PrepareCall(&context_, kStreamTensor, &queue_);
    call_->StartCall(nullptr);
    Wait();
    // A write to a call that failed already changes nothing: Finish tells why.
    call_->WriteLast(grpc::ByteBuffer(&serialized, 1), grpc::WriteOptions(),
                     nullptr);
    Wait();
    // Finish comes before the first Read: gRPC 1.83 reports a message that is
    // too large only to an operation that already waits for the status. Both
    // would receive the initial metadata, which can be received once.
    call_->ReadInitialMetadata(nullptr);
    Wait();
    call_->Finish(&status_, &status_);
  }

  ~RawStream() {
    context_.TryCancel();  // of no effect on a call that has ended
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  RawStream(const RawStream&) = delete;
  RawStream& operator=(const RawStream&) = delete;

  // The next message; false at the end of the stream, whatever ended it.
  bool Read(grpc::ByteBuffer* message) {
    call_->Read(message, nullptr);
    return Wait();
  }

  // How the call ended. Once, after Read returned false.
  CallEnd Finish() {
    if (!ended_) Wait(&status_);
    return CallEnd::Of(std::move(status_), context_);
  }

 private:
  // Waits for the operation with that tag; false if it failed. Only the
  // operation that receives the status has one, and is in flight with others.
  bool Wait(const void* wanted = nullptr) {
    void* tag = nullptr;
    bool ok = false;
    do {
      queue_.Next(&tag, &ok);
      if (tag == &status_) ended_ = true;
    } while (tag != wanted);
    return ok;
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::Status status_;  // and the tag of the operation that receives it
  bool ended_ = false;
};

// The payload of one call of Download.
class Assembly {
 public:
  Assembly(const v1::TensorSpec& spec, int64_t max_tensor_bytes,
           const ReserveFn& reserve, const ProgressFn& progress)
      : max_tensor_bytes_(max_tensor_bytes),
        reserve_(reserve),
        progress_(progress) {
    *request_.mutable_spec() = spec;
  }

  // Runs one stream to its end. A broken message is an error here; how the
  // server ended the stream is in `call_end`.
  absl::Status Receive(const std::shared_ptr<grpc::Channel>& channel,
                       const Attempts& attempts, CallEnd* call_end) {
    request_.set_read_offset(at_);
    request_.set_expected_fingerprint(at_ > 0 ? header_.fingerprint() : "");
    has_header_ = false;
    RawStream stream(channel, request_, attempts);
    grpc::ByteBuffer message;
    while (stream.Read(&message)) {
      absl::Status taken = Take(&message);
      if (!taken.ok()) return taken;
    }
    *call_end = stream.Finish();
    return absl::OkStatus();
  }

  bool is_whole() const { return has_header_ && at_ == total_bytes(); }
  int64_t at() const { return at_; }
  void Restart() { at_ = 0; }
  v1::TensorHeader Release() { return std::move(header_); }

  // Describes a stream that ended in OK too early.
  absl::Status EndedEarly() const {
    if (!has_header_) {
      return absl::DataLossError("stream: ended without a header");
    }
    return absl::DataLossError(absl::StrCat("stream: ended after ", at_,
                                            " bytes, want ", total_bytes()));
  }

 private:
  absl::Status Take(grpc::ByteBuffer* message) {
    const bool is_first = !has_header_;
    if (is_first) {
      absl::Status taken = TakeHeader(message);
      if (!taken.ok()) return taken;
    }
    const auto chunk =
        ReadChunk(message, memory_.subspan(at_),
                  total_bytes() < kStreamedBytes ? Placement::kCached
                                                 : Placement::kStreamed);
    if (!chunk.ok()) return chunk.status();
    // A header alone has no offset.
    if (is_first && chunk->size == 0) return absl::OkStatus();
    if (!is_first && chunk->header.has_value()) {
      return absl::DataLossError("stream: a second header");
    }
    if (chunk->offset != at_) {
      return absl::DataLossError(
          absl::StrCat("chunk: got offset ", chunk->offset, ", want ", at_));
    }
    at_ += chunk->size;
    if (progress_) progress_(at_, total_bytes());
    return absl::OkStatus();
  }

  // Checks the header of the first message, whose data stays to be read. Finds
  // memory unless the payload was begun by an earlier stream.
  absl::Status TakeHeader(grpc::ByteBuffer* message) {
    auto header = ReadHeader(message);
    if (!header.ok()) return header.status();
    if (!header->has_value()) {
      return absl::DataLossError("stream: the first message has no header");
    }
    has_header_ = true;
    if (at_ > 0) return CheckSame(**header, header_);
    absl::Status status =
        CheckHeader(**header, request_.spec(), max_tensor_bytes_);
    if (!status.ok()) return status;
    header_ = **std::move(header);
    auto memory = reserve_(header_);
    if (!memory.ok()) return memory.status();
    memory_ = memory->subspan(0, static_cast<size_t>(header_.total_bytes()));
    return absl::OkStatus();
  }

  int64_t total_bytes() const { return static_cast<int64_t>(memory_.size()); }

  const int64_t max_tensor_bytes_;
  const ReserveFn& reserve_;
  const ProgressFn& progress_;
  v1::StreamTensorRequest request_;

  v1::TensorHeader header_;
  absl::Span<std::byte> memory_;
  int64_t at_ = 0;  // Bytes in their place.
  // True once the current stream has brought its header.
  bool has_header_ = false;
};

}  // namespace

absl::StatusOr<v1::TensorHeader> Download(
    const v1::TensorSpec& spec, int64_t max_tensor_bytes,
    const ReserveFn& reserve, const ProgressFn& progress,
    const std::shared_ptr<grpc::Channel>& channel, Attempts attempts) {
  Assembly payload(spec, max_tensor_bytes, reserve, progress);
  bool has_restarted = false;
  for (;;) {
    const int64_t before = payload.at();
    CallEnd call_end;
    absl::Status broken = payload.Receive(channel, attempts, &call_end);
    if (!broken.ok()) return broken;
    // Once every byte has come and was checked, the stream may end as it likes.
    if (payload.is_whole()) return payload.Release();
    const grpc::StatusCode code = call_end.status.error_code();
    if (code == grpc::StatusCode::OK) return payload.EndedEarly();
    if (before > 0 && !has_restarted &&
        (code == grpc::StatusCode::FAILED_PRECONDITION ||
         code == grpc::StatusCode::NOT_FOUND)) {
      // A table has changed or is gone, perhaps only on some replicas. So all
      // of the payload is fetched again, once.
      has_restarted = true;
      payload.Restart();
      attempts.Progressed();
      continue;
    }
    if (payload.at() > before) attempts.Progressed();
    if (!attempts.WaitAfter(call_end)) {
      return attempts.ErrorOf(call_end.status);
    }
  }
}

}  // namespace attnbias
