// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/download.h"

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/src/chunk.h"
#include "client/cpp/src/range.h"
#include "client/cpp/src/retry_state.h"
#include "client/cpp/src/rpc_status.h"
#include "client/cpp/src/unary_call.h"

namespace attnbias {
namespace {

constexpr char kGetTensor[] = "/attnbias.v1.AttentionBiasService/GetTensor";

// A connection's window: none waits for another inside of it.
constexpr int64_t kFirstBytes = 16 << 20;
// What ranges are rounded to, so that chunks stay whole.
constexpr int64_t kChunkBytes = 1 << 20;
// Of one stream: less is not worth another connection.
constexpr absl::Duration kWorthwhile = absl::Milliseconds(250);
constexpr int64_t kMostStreams = 8;

int64_t Quotient(int64_t dividend, int64_t divisor) {
  return (dividend + divisor - 1) / divisor;  // rounded up
}

// Whether a message is refused where a stream may not be: it has grown too
// large, the caller may not call the method, or there is none.
bool IsForAStream(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNIMPLEMENTED:
      return true;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return !RetryDelay(status).has_value();
    default:
      return false;
  }
}

absl::Status Take(grpc::ByteBuffer* message, Payload* payload) {
  auto header = ReadHeader(message);
  if (!header.ok()) return header.status();
  if (!header->has_value()) {
    return absl::DataLossError("stream: the first message has no header");
  }
  const auto room = payload->Accept(**std::move(header), 0);
  if (!room.ok()) return room.status();
  const auto chunk = ReadChunk(message, *room, Placement::kCached);
  if (!chunk.ok()) return chunk.status();
  if (chunk->size != static_cast<int64_t>(room->size())) {
    return absl::DataLossError(absl::StrCat("message: has ", chunk->size,
                                            " bytes, want ", room->size()));
  }
  payload->Advance(chunk->size);
  return absl::OkStatus();
}

}  // namespace

int64_t WorthwhileStreams(int64_t rest, absl::Duration first) {
  const double worthwhile =
      kFirstBytes *
      std::max(1.0, absl::FDivDuration(kWorthwhile,
                                       std::max(first, absl::Nanoseconds(1))));
  return std::min(
      kMostStreams,
      static_cast<int64_t>(std::ceil(static_cast<double>(rest) / worthwhile)));
}

Download::Download(const v1::TensorSpec& spec, std::optional<int> streams,
                   const Attempts& attempts, Channels* channels,
                   KnownSizes* sizes, Payload* payload)
    : spec_(spec),
      streams_(streams),
      attempts_(attempts),
      channels_(*channels),
      sizes_(*sizes),
      payload_(*payload) {}

absl::Status Download::Run() {
  absl::StatusOr<bool> got = false;
  if (sizes_.FitsMessage(spec_)) got = Get();
  if (!got.ok()) return got.status();
  if (!*got) {
    absl::Status status = Stream();
    // The server's bytes have changed since the download began: everything
    // comes anew, but only once.
    if (absl::IsFailedPrecondition(status) && has_gone_on_) {
      status = Stream();
    }
    if (!status.ok()) return status;
  }
  sizes_.Learn(spec_, payload_.header().total_bytes());
  return absl::OkStatus();
}

absl::StatusOr<bool> Download::Get() {
  v1::GetTensorRequest request;
  *request.mutable_spec() = spec_;
  Attempts attempts = attempts_;
  for (;;) {
    grpc::ClientContext context;
    attempts.Prepare(&context);
    grpc::ByteBuffer message;
    const grpc::Status status =
        CallUnary(channels_.At(0), kGetTensor, request, &context, &message);
    if (status.ok()) {
      absl::Status taken = Take(&message, &payload_);
      if (!taken.ok()) return taken;
      return true;
    }
    if (IsForAStream(status)) return false;
    if (!attempts.WaitAfter(CallEnd::Of(status, context))) {
      return attempts.ErrorOf(status);
    }
  }
}

absl::Status Download::Stream() {
  const absl::Time began = absl::Now();
  CallGroup group;
  std::optional<int64_t> end;
  if (streams_ != 1) end = kFirstBytes;
  Range range(spec_, 0, end, &payload_, &group);
  absl::Status status = Fetch(&range, 0, &group);
  has_gone_on_ = range.HasGoneOn();
  if (!status.ok() || !end.has_value()) return status;
  const int64_t rest = payload_.header().total_bytes() - kFirstBytes;
  if (rest <= 0) return status;
  has_gone_on_ = true;
  return Rest(streams_.has_value()
                  ? *streams_
                  : WorthwhileStreams(rest, absl::Now() - began));
}

absl::Status Download::Rest(int64_t streams) {
  const int64_t total = payload_.header().total_bytes();
  const int64_t share =
      Quotient(Quotient(total - kFirstBytes, streams), kChunkBytes) *
      kChunkBytes;
  CallGroup group;
  const auto fetch = [&](size_t index) {
    const int64_t begin = kFirstBytes + static_cast<int64_t>(index) * share;
    Range range(spec_, begin, std::min(begin + share, total), &payload_,
                &group);
    const absl::Status status = Fetch(&range, index, &group);
    if (!status.ok()) group.Fail(status);
  };
  const auto ranges = static_cast<size_t>(Quotient(total - kFirstBytes, share));
  // Each has a thread, or its turn in this one where there are no more.
  std::vector<std::future<void>> others;
  for (size_t index = 1; index < ranges; ++index) {
    others.push_back(std::async(fetch, index));
  }
  fetch(0);
  for (std::future<void>& other : others) other.get();
  return group.status();
}

absl::Status Download::Fetch(Range* range, size_t index, CallGroup* group) {
  const std::shared_ptr<grpc::Channel> channel = channels_.At(index);
  return range->Run(grpc::GenericStub(channel),
                    attempts_.ForPart(channel.get(), group));
}

}  // namespace attnbias
