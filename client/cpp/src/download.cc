// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/download.h"

#include <grpcpp/support/byte_buffer.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/src/header_check.h"
#include "client/cpp/src/raw_stream.h"
#include "client/cpp/src/rpc_status.h"

namespace attnbias {
namespace {

// From here on a payload is out of the last caches before it is read. Measured
// over loopback, copying past them then saves a fifth of the client's time.
constexpr size_t kStreamedBytes = 16 << 20;

}  // namespace

Download::Download(grpc::GenericStub* stub, int64_t max_tensor_bytes,
                   ReserveFn reserve, const ProgressFn& progress)
    : stub_(stub),
      max_tensor_bytes_(max_tensor_bytes),
      reserve_(std::move(reserve)),
      progress_(progress) {}

absl::StatusOr<v1::TensorHeader> Download::Run(const v1::TensorSpec& spec,
                                               Attempts attempts) {
  *request_.mutable_spec() = spec;
  bool restarted = false;
  for (;;) {
    const int64_t before = received_;
    CallEnd end;
    const absl::Status broken = Receive(attempts, &end);
    if (!broken.ok()) return broken;
    // Once every byte has come and was checked, the stream may end as it likes.
    if (end.status.ok() || IsComplete()) break;
    if (end.status.error_code() == grpc::StatusCode::FAILED_PRECONDITION &&
        before > 0 && !restarted) {
      // The server's bytes have changed since the download began.
      restarted = true;
      StartAfresh();
      continue;
    }
    if (received_ > before) attempts.Progressed();
    if (!attempts.WaitAfter(end)) return attempts.ErrorOf(end.status);
  }
  if (!header_.has_value()) {
    return absl::DataLossError("stream: ended without a header");
  }
  if (!IsComplete()) {
    return absl::DataLossError(absl::StrCat("stream: ended after ", received_,
                                            " bytes, want ",
                                            header_->total_bytes()));
  }
  return *std::move(header_);
}

absl::Status Download::Receive(const Attempts& attempts, CallEnd* end) {
  request_.set_read_offset(received_);
  request_.set_expected_fingerprint(received_ > 0 ? header_->fingerprint()
                                                  : "");
  RawStream stream(stub_, request_, attempts);
  grpc::ByteBuffer message;
  for (bool first = true; stream.Read(&message); first = false) {
    absl::StatusOr<Chunk> chunk = ReadChunk(
        &message, first ? absl::Span<std::byte>() : memory_.subspan(received_),
        memory_.size() < kStreamedBytes ? Placement::kCached
                                        : Placement::kStreamed);
    if (!chunk.ok()) return chunk.status();
    absl::Status taken =
        first ? TakeHeader(*std::move(chunk)) : TakeData(*chunk);
    if (!taken.ok()) return taken;
  }
  *end = stream.Finish();
  return absl::OkStatus();
}

bool Download::IsComplete() const {
  return header_.has_value() && received_ == header_->total_bytes();
}

absl::Status Download::TakeHeader(Chunk chunk) {
  if (!chunk.header.has_value()) {
    return absl::DataLossError("stream: the first message has no header");
  }
  if (absl::Status status = CheckHeader(*chunk.header, max_tensor_bytes_);
      !status.ok()) {
    return status;
  }
  if (received_ > 0) return CheckSame(*chunk.header, *header_);
  header_ = *std::move(chunk.header);
  auto memory = reserve_(*header_);
  if (!memory.ok()) return memory.status();
  memory_ = memory->subspan(0, static_cast<size_t>(header_->total_bytes()));
  return absl::OkStatus();
}

absl::Status Download::TakeData(const Chunk& chunk) {
  if (chunk.header.has_value()) {
    return absl::DataLossError("stream: a second header");
  }
  if (chunk.offset != received_) {
    return absl::DataLossError(
        absl::StrCat("chunk: got offset ", chunk.offset, ", want ", received_));
  }
  received_ += chunk.size;
  if (progress_) progress_(received_, header_->total_bytes());
  return absl::OkStatus();
}

void Download::StartAfresh() {
  received_ = 0;
  header_.reset();
  memory_ = {};
}

}  // namespace attnbias
