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
constexpr double kWorthwhileSeconds = 0.25;
constexpr int64_t kMostWorthwhileStreams = 8;

int64_t Quotient(int64_t dividend, int64_t divisor) {
  return (dividend + divisor - 1) / divisor;  // rounded up
}

// Whether this client gets nothing in one message: messages are larger than it
// takes, it may not ask for any, or none exist.
bool FitNone(grpc::StatusCode code) {
  return code == grpc::StatusCode::RESOURCE_EXHAUSTED ||
         code == grpc::StatusCode::PERMISSION_DENIED ||
         code == grpc::StatusCode::UNIMPLEMENTED;
}

// Whether a message is refused where a stream may not be, and at once.
bool IsForAStream(const CallEnd& end) {
  const grpc::StatusCode code = end.status.error_code();
  const bool has_grown = code == grpc::StatusCode::INVALID_ARGUMENT;
  return (has_grown || FitNone(code)) && !end.pushback.has_value() &&
         !RetryDelay(end.status).has_value();
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

int64_t WorthwhileStreams(int64_t rest, double bytes_per_second) {
  const double worthwhile =
      std::max<double>(kFirstBytes, bytes_per_second * kWorthwhileSeconds);
  return std::clamp<int64_t>(
      std::llround(std::ceil(static_cast<double>(rest) / worthwhile)), 1,
      kMostWorthwhileStreams);
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
    // A table has changed or is gone, perhaps only on some replicas. So all of
    // the payload is fetched again, over one stream.
    if (has_gone_on_ &&
        (absl::IsFailedPrecondition(status) || absl::IsNotFound(status))) {
      CallGroup group;
      Range all(spec_, 0, std::nullopt, &payload_, &group);
      status = Fetch(&all, 0, &group);
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
    const CallEnd end = CallEnd::Of(status, context);
    if (IsForAStream(end)) {
      if (FitNone(status.error_code())) sizes_.FitNone();
      return false;
    }
    if (!attempts.WaitAfter(end)) return attempts.ErrorOf(status);
  }
}

absl::Status Download::Stream() {
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
                  : WorthwhileStreams(rest, range.bytes_per_second()));
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
