// SPDX-License-Identifier: Apache-2.0
#include "attnbias/client.h"

#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "attnbias/internal/printable.h"
#include "attnbias/internal/rpc.pb.h"
#include "attnbias/v1/service.grpc.pb.h"
#include "client/cpp/src/attempts.h"
#include "client/cpp/src/channel.h"
#include "client/cpp/src/chunk.h"
#include "client/cpp/src/header.h"
#include "client/cpp/src/security.h"
#include "client/cpp/src/target.h"
#include "core/checksum/crc32c.h"

namespace attnbias {
namespace {

constexpr char kDescribe[] = "/attnbias.v1.AttentionBiasService/DescribeTensor";
constexpr char kStreamTensor[] = "/attnbias.v1.AttentionBiasService/StreamTensor";
constexpr char kCheckHealth[] = "/grpc.health.v1.Health/Check";

constexpr size_t kAlignment = 64;
// Payloads of at least this size have left the last-level cache by the time they are read. In
// measurements over loopback, non-temporal stores save a fifth of the client's time.
constexpr int64_t kStreamedBytes = 16 << 20;
// The contract's limit.
constexpr int kTablesPerPage = 1000;
constexpr int kMostPages = 100;

// Rejects metadata for which gRPC would abort the program.
absl::Status CheckMetadata(const std::string& key, const std::string& value) {
  const auto slice = [](const std::string& text) {
    return grpc_slice_from_static_buffer(text.data(), text.size());
  };
  if (grpc_header_key_is_legal(slice(key)) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata: got the key \"", absl::CHexEscape(key),
                     "\", want lowercase letters, digits, '-', '_' and '.'"));
  }
  if (grpc_is_binary_header(slice(key)) == 0 &&
      grpc_header_nonbin_value_is_legal(slice(value)) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata: got a value for \"", key,
                     "\" that is not printable ASCII, want printable ASCII, or a key that ends "
                     "in \"-bin\""));
  }
  return absl::OkStatus();
}

absl::Status Validate(const ClientOptions& options) {
  const auto refused = [](const char* name, const auto& got, const char* want) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": got ", got, ", want ", want));
  };
  for (const auto& [name, timeout] : {std::pair("timeout", options.timeout),
                                      std::pair("connect_timeout", options.connect_timeout)}) {
    if (timeout > absl::ZeroDuration()) continue;
    return refused(name, absl::FormatDuration(timeout), "more than 0");
  }
  if (options.max_tensor_bytes <= 0) {
    return refused("max_tensor_bytes", options.max_tensor_bytes, "more than 0");
  }
  if (options.max_attempts.value_or(1) <= 0) {
    return refused("max_attempts", *options.max_attempts, "at least 1");
  }
  for (const auto& [key, value] : options.metadata) {
    if (absl::Status legal = CheckMetadata(key, value); !legal.ok()) {
      return legal;
    }
  }
  return absl::OkStatus();
}

// A call whose messages stay in the slices that gRPC received, so that a payload is copied only
// once and never passes through a protobuf message. Not thread-safe. The destructor cancels the
// call unless it has ended.
class RawStream {
 public:
  RawStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& request,
            const Attempts& attempts)
      : stub_(channel) {
    attempts.Prepare(&context_);
    const grpc::Slice serialized(request);
    call_ = stub_.PrepareCall(&context_, kStreamTensor, &queue_);
    call_->StartCall(nullptr);
    Wait();
    // A failed write needs no check: Finish reports why the call has ended.
    call_->WriteLast(grpc::ByteBuffer(&serialized, 1), grpc::WriteOptions(), nullptr);
    Wait();
    // Finish precedes the first Read: gRPC 1.83 reports a message that is too large only to an
    // operation that is already waiting for the status. Both operations would otherwise receive the
    // initial metadata, which can be received only once.
    call_->ReadInitialMetadata(nullptr);
    Wait();
    call_->Finish(&status_, &status_);
  }

  ~RawStream() {
    context_.TryCancel();  // has no effect on a call that has ended
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  RawStream(const RawStream&) = delete;
  RawStream& operator=(const RawStream&) = delete;

  // Reads the next message. Returns false at the end of the stream, whatever the reason.
  bool Read(grpc::ByteBuffer* message) {
    call_->Read(message, nullptr);
    return Wait();
  }

  // Returns how the call ended. Must be called once, after Read has returned false.
  CallEnd Finish() {
    if (!ended_) Wait(&status_);
    return CallEnd::Of(std::move(status_), context_);
  }

 private:
  // Waits for the operation with this tag and returns false if it failed. Only the operation that
  // receives the status has a tag, since the others overlap it.
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
  grpc::Status status_;  // also the tag of the operation that receives it
  bool ended_ = false;
};

// Reserves memory for a payload of header.total_bytes() bytes. Called again if a download starts
// over; the memory returned earlier is then no longer used.
using ReserveFn =
    std::function<absl::StatusOr<absl::Span<std::byte>>(const v1::TensorHeader& header)>;

// Downloads one payload over StreamTensor, and resumes the download if the stream breaks.
class Download {
 public:
  Download(const v1::TensorSpec& spec, int64_t max_tensor_bytes, const ReserveFn& reserve,
           const ProgressFn& progress)
      : max_tensor_bytes_(max_tensor_bytes), reserve_(reserve), progress_(progress) {
    *request_.mutable_spec() = spec;
  }

  // Returns the header once the payload is complete, or the error of the last attempt.
  absl::StatusOr<v1::TensorHeader> Run(const std::shared_ptr<grpc::Channel>& channel,
                                       Attempts attempts) {
    bool has_restarted = false;
    for (;;) {
      const int64_t before = at_;
      const absl::StatusOr<CallEnd> end = Receive(channel, attempts);
      if (!end.ok()) return end.status();
      // Once every byte has been checked, the stream may end in any way.
      if (has_header_ && at_ == total_bytes()) return std::move(header_);
      const grpc::StatusCode code = end->status.error_code();
      if (code == grpc::StatusCode::OK) {
        return absl::DataLossError(
            has_header_ ? absl::StrCat("stream: ended after ", at_, " bytes, want ", total_bytes())
                        : "stream: ended without a header");
      }
      if (before > 0 && !has_restarted &&
          (code == grpc::StatusCode::FAILED_PRECONDITION || code == grpc::StatusCode::NOT_FOUND)) {
        // A table has changed or is gone, perhaps only on some replicas. The whole payload is
        // fetched again, but only once.
        has_restarted = true;
        at_ = 0;
        attempts.Progressed();
        continue;
      }
      if (at_ > before) attempts.Progressed();
      if (!attempts.WaitAfter(*end)) return attempts.ErrorOf(end->status);
    }
  }

 private:
  // Reads one stream to its end and returns how the server ended it. Returns an error if a message
  // is malformed.
  absl::StatusOr<CallEnd> Receive(const std::shared_ptr<grpc::Channel>& channel,
                                  const Attempts& attempts) {
    request_.set_read_offset(at_);
    request_.set_expected_fingerprint(at_ > 0 ? header_.fingerprint() : "");
    has_header_ = false;
    const std::string request = request_.SerializeAsString();
    request_crc32c_ = Crc32c(request.data(), request.size());
    RawStream stream(channel, request, attempts);
    grpc::ByteBuffer message;
    while (stream.Read(&message)) {
      absl::Status read = ReadMessage(&message);
      if (!read.ok()) return read;
    }
    return stream.Finish();
  }

  absl::Status ReadMessage(grpc::ByteBuffer* message) {
    const bool is_first = !has_header_;
    if (is_first) {
      absl::Status read = ReadFirstHeader(message);
      if (!read.ok()) return read;
    }
    const auto chunk =
        ReadChunk(message, memory_.subspan(at_),
                  total_bytes() < kStreamedBytes ? Placement::kCached : Placement::kStreamed);
    if (!chunk.ok()) return chunk.status();
    // A message with only a header has no offset.
    if (is_first && chunk->size == 0) return absl::OkStatus();
    if (!is_first && chunk->header.has_value()) {
      return absl::DataLossError("stream: a second header");
    }
    if (chunk->offset != at_) {
      return absl::DataLossError(absl::StrCat("chunk: got offset ", chunk->offset, ", want ", at_));
    }
    at_ += chunk->size;
    if (progress_) progress_(at_, total_bytes());
    return absl::OkStatus();
  }

  // Checks the header of the first message, without reading its data. Reserves memory unless an
  // earlier stream has delivered the beginning of the payload.
  absl::Status ReadFirstHeader(grpc::ByteBuffer* message) {
    auto header = ReadHeader(message, request_crc32c_);
    if (!header.ok()) return header.status();
    has_header_ = true;
    absl::Status status = CheckHeader(*header, max_tensor_bytes_);
    if (!status.ok()) return status;
    if (at_ > 0) return CheckSame(*header, header_);
    header_ = *std::move(header);
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
  uint32_t request_crc32c_ = 0;  // of the last request's bytes

  v1::TensorHeader header_;
  absl::Span<std::byte> memory_;
  int64_t at_ = 0;  // bytes received and checked
  // True once the current stream's header has been received.
  bool has_header_ = false;
};

}  // namespace

struct Client::Connection {
  // The target and TLS settings in `client_options` must already be resolved.
  Connection(const ClientOptions& client_options, std::unique_ptr<BearerToken> bearer_token)
      : options(client_options),
        token(std::move(bearer_token)),
        channel(MakeChannel(options)),
        stub(v1::AttentionBiasService::NewStub(channel)) {}

  Attempts NewAttempts() const { return Attempts(options, channel.get(), token.get(), &reached); }

  // Repeats `call(context)` until it succeeds or fails permanently.
  template <typename Call>
  absl::Status Try(Call call, Attempts attempts) const {
    for (;;) {
      grpc::ClientContext context;
      attempts.Prepare(&context);
      const grpc::Status status = call(&context);
      if (status.ok()) return absl::OkStatus();
      if (!attempts.WaitAfter(CallEnd::Of(status, context))) {
        return attempts.ErrorOf(status);
      }
    }
  }

  absl::StatusOr<v1::TensorHeader> Fetch(const v1::TensorSpec& spec, const ReserveFn& reserve,
                                         const ProgressFn& progress) const {
    return Download(spec, options.max_tensor_bytes, reserve, progress).Run(channel, NewAttempts());
  }

  const ClientOptions options;
  const std::unique_ptr<BearerToken> token;  // null if there is none
  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<v1::AttentionBiasService::Stub> stub;
  mutable std::atomic<bool> reached = false;
};

Client::Client(std::shared_ptr<const Connection> connection) : connection_(std::move(connection)) {}

absl::StatusOr<Client> Client::Create(const ClientOptions& options) {
  if (absl::Status status = Validate(options); !status.ok()) return status;
  absl::StatusOr<std::string> target = TargetFrom(options.target);
  if (!target.ok()) return target.status();
  absl::StatusOr<TlsOptions> tls = TlsFrom(options.tls);
  if (!tls.ok()) return tls.status();
  absl::StatusOr<std::unique_ptr<BearerToken>> token = BearerToken::From(options);
  if (!token.ok()) return token.status();
  if (*token != nullptr && !tls->enabled && !IsOnThisMachine(*target)) {
    return absl::InvalidArgumentError(
        absl::StrCat((*token)->name(), ": got a token but no TLS, and ", *target,
                     " is not on this machine, so others could read the token: set tls"));
  }
  ClientOptions resolved = options;
  resolved.target = *std::move(target);
  resolved.tls = *std::move(tls);
  return Client(std::make_shared<const Connection>(resolved, *std::move(token)));
}

absl::StatusOr<v1::TensorHeader> Client::Describe(const v1::TensorSpec& spec) const {
  v1::DescribeTensorRequest message;
  *message.mutable_spec() = spec;
  const std::string bytes = message.SerializeAsString();
  const grpc::Slice slice(bytes);
  grpc::ByteBuffer response;
  const absl::Status status = connection_->Try(
      [&](grpc::ClientContext* context) {
        return CallUnary(connection_->channel, kDescribe, grpc::ByteBuffer(&slice, 1), context,
                         &response);
      },
      connection_->NewAttempts());
  if (!status.ok()) return status;
  auto header = ReadHeader(&response, Crc32c(bytes.data(), bytes.size()));
  if (!header.ok()) return header.status();
  const absl::Status checked = CheckHeader(*header, std::numeric_limits<int64_t>::max());
  if (!checked.ok()) return checked;
  return header;
}

absl::StatusOr<Tensor> Client::Get(const v1::TensorSpec& spec, const ProgressFn& progress) const {
  AlignedBytes bytes;
  auto header = connection_->Fetch(
      spec,
      [&bytes](const v1::TensorHeader& h) -> absl::StatusOr<absl::Span<std::byte>> {
        const auto size = static_cast<size_t>(h.total_bytes());
        bytes.reset();
        // aligned_alloc requires a positive multiple of the alignment.
        bytes.reset(static_cast<std::byte*>(
            std::aligned_alloc(kAlignment, (size / kAlignment + 1) * kAlignment)));
        if (bytes != nullptr) return absl::MakeSpan(bytes.get(), size);
        return absl::ResourceExhaustedError(
            absl::StrCat("tensor: not enough memory for its ", size, " bytes"));
      },
      progress);
  if (!header.ok()) return header.status();
  return Tensor(*std::move(header), std::move(bytes));
}

absl::StatusOr<v1::TensorHeader> Client::GetInto(const v1::TensorSpec& spec,
                                                 absl::Span<std::byte> out,
                                                 const ProgressFn& progress) const {
  return connection_->Fetch(
      spec,
      [out](const v1::TensorHeader& header) -> absl::StatusOr<absl::Span<std::byte>> {
        if (static_cast<int64_t>(out.size()) < header.total_bytes()) {
          return absl::InvalidArgumentError(absl::StrCat(
              "out: got ", out.size(), " bytes, want at least ", header.total_bytes()));
        }
        return out;
      },
      progress);
}

absl::StatusOr<v1::GetServerInfoResponse> Client::ServerInfo() const {
  v1::GetServerInfoResponse response;
  const absl::Status status = connection_->Try(
      [&](grpc::ClientContext* context) {
        return connection_->stub->GetServerInfo(context, v1::GetServerInfoRequest(), &response);
      },
      connection_->NewAttempts());
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<std::vector<v1::TableInfo>> Client::ListTables() const {
  std::vector<v1::TableInfo> tables;
  const Attempts attempts = connection_->NewAttempts();
  v1::ListTablesRequest request;
  request.set_page_size(kTablesPerPage);
  for (int page = 0; page < kMostPages; ++page) {
    v1::ListTablesResponse response;
    const absl::Status status = connection_->Try(
        [&](grpc::ClientContext* context) {
          return connection_->stub->ListTables(context, request, &response);
        },
        attempts);
    if (!status.ok()) return status;
    for (v1::TableInfo& table : *response.mutable_tables()) {
      if (!tables.empty() && table.name() <= tables.back().name()) {
        return absl::DataLossError(absl::StrCat(
            "tables: got \"", internal::Excerpt(table.name()), "\" after \"",
            internal::Excerpt(tables.back().name()), "\", want names in ascending order"));
      }
      tables.push_back(std::move(table));
    }
    if (response.next_page_token().empty()) return tables;
    if (response.tables().empty()) {
      return absl::DataLossError("tables: got an empty page before the last");
    }
    request.set_page_token(response.next_page_token());
  }
  return absl::DataLossError(
      absl::StrCat("tables: got more than ", kMostPages, " pages, want at most ", kMostPages));
}

absl::StatusOr<Health> Client::CheckHealth(const std::string& service) const {
  using Answer = internal::HealthCheckResponse;
  const Attempts attempts = connection_->NewAttempts();
  grpc::ClientContext context;
  attempts.Prepare(&context);
  internal::HealthCheckRequest request;
  request.set_service(service);
  Answer answer;
  const grpc::Status status =
      CallUnary(connection_->channel, kCheckHealth, request, &context, &answer);
  if (!status.ok()) return attempts.ErrorOf(status);
  return answer.status() == Answer::SERVING       ? Health::kServing
         : answer.status() == Answer::NOT_SERVING ? Health::kNotServing
                                                  : Health::kUnknown;
}

}  // namespace attnbias
