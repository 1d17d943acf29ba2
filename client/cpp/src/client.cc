// SPDX-License-Identifier: Apache-2.0
#include "attnbias/client.h"

#include <google/protobuf/text_format.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "attnbias/v1/service.grpc.pb.h"
#include "client/cpp/src/attempts.h"
#include "client/cpp/src/bearer_token.h"
#include "client/cpp/src/channels.h"
#include "client/cpp/src/chunk.h"
#include "client/cpp/src/disk_cache.h"
#include "client/cpp/src/download.h"
#include "client/cpp/src/draft.h"
#include "client/cpp/src/header_check.h"
#include "client/cpp/src/health_check.h"
#include "client/cpp/src/known_sizes.h"
#include "client/cpp/src/payload.h"
#include "client/cpp/src/retry_state.h"
#include "client/cpp/src/target.h"
#include "client/cpp/src/tls.h"
#include "client/cpp/src/unary_call.h"

namespace attnbias {
namespace {

constexpr char kDescribe[] = "/attnbias.v1.AttentionBiasService/DescribeTensor";

// Between two looks at a lock that another has.
constexpr absl::Duration kFirstPause = absl::Milliseconds(2);
constexpr absl::Duration kLargestPause = absl::Milliseconds(50);
constexpr size_t kAlignment = 64;
constexpr int kMaxStreams = 64;
// The most that the contract allows.
constexpr int kTablesPerPage = 1000;
// Of each field of a request, in an error: characters, and bytes of a table.
constexpr size_t kMostBrief = 200;
constexpr int64_t kMostBriefNumbers = 16;

// gRPC ends the program at a call with others.
absl::Status CheckMetadata(const std::string& key, const std::string& value) {
  const auto slice = [](const std::string& text) {
    return grpc_slice_from_static_buffer(text.data(), text.size());
  };
  if (grpc_header_key_is_legal(slice(key)) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata: got the key \"", absl::CHexEscape(key),
                     "\", want lower-case letters, digits, and any of -_."));
  }
  if (grpc_is_binary_header(slice(key)) == 0 &&
      grpc_header_nonbin_value_is_legal(slice(value)) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "metadata: got a value of \"", key,
        "\" that is not printable ASCII, want one that is, or a key that ends "
        "in \"-bin\""));
  }
  return absl::OkStatus();
}

absl::Status Validate(const ClientOptions& options) {
  if (options.timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("timeout: got ", absl::FormatDuration(options.timeout),
                     ", want more than 0"));
  }
  if (options.max_tensor_bytes <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("max_tensor_bytes: got ",
                                                   options.max_tensor_bytes,
                                                   ", want more than 0"));
  }
  if (options.max_attempts.has_value() && *options.max_attempts <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_attempts: got ", *options.max_attempts, ", want at least 1"));
  }
  if (options.streams.has_value() &&
      (*options.streams < 1 || *options.streams > kMaxStreams)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "streams: got ", *options.streams, ", want 1 to ", kMaxStreams));
  }
  if (options.cache_bytes.has_value() && *options.cache_bytes <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cache_bytes: got ", *options.cache_bytes, ", want at least 1"));
  }
  for (const auto& [key, value] : options.metadata) {
    if (absl::Status legal = CheckMetadata(key, value); !legal.ok()) {
      return legal;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<AlignedBytes> Allocate(int64_t size) {
  // aligned_alloc wants a multiple of the alignment; 0 bytes would not do.
  const size_t padded =
      (static_cast<size_t>(size) / kAlignment + 1) * kAlignment;
  AlignedBytes bytes(
      static_cast<std::byte*>(std::aligned_alloc(kAlignment, padded)));
  if (bytes == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("tensor: no memory for its ", size, " bytes"));
  }
  return bytes;
}

// What is asked for in one line: of the encoding, the extent and the output
// each as much as there is room for.
std::string Brief(const v1::TensorSpec& spec) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  printer.SetUseShortRepeatedPrimitives(true);
  printer.SetTruncateStringFieldLongerThan(kMostBriefNumbers);
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  spec.GetReflection()->ListFields(spec, &fields);
  std::string line;
  for (const auto* field : fields) {
    std::string text;
    printer.PrintFieldValueToString(spec, field, -1, &text);
    if (text.size() > kMostBrief) text.replace(kMostBrief, text.npos, "... ");
    absl::StrAppend(&line, line.empty() ? "" : " ", field->name(), " { ", text,
                    "}");
  }
  return line;
}

absl::Status Offline() {
  return absl::UnavailableError(
      "the client is offline (offline = true), and this needs a server");
}

// The header of a DescribeTensorResponse.
absl::StatusOr<v1::TensorHeader> HeaderIn(const std::string& response) {
  const grpc::Slice slice(response);
  grpc::ByteBuffer message(&slice, 1);
  absl::StatusOr<Chunk> answer = ReadChunk(&message, {}, Placement::kCached);
  if (!answer.ok()) return answer.status();
  if (!answer->header.has_value()) {
    return absl::DataLossError("DescribeTensor: the answer has no header");
  }
  return *std::move(answer->header);
}

}  // namespace

struct Client::Connection {
  // The options' target, TLS and cache folder are resolved.
  Connection(const ClientOptions& client_options,
             std::unique_ptr<BearerToken> bearer_token)
      : options(client_options),
        token(std::move(bearer_token)),
        channels(options),
        channel(channels.At(0)),
        stub(v1::AttentionBiasService::NewStub(channel)) {
    if (!options.cache_folder->empty()) {
      cache = std::make_unique<DiskCache>(
          *options.cache_folder, options.cache_bytes, options.on_cache_error);
    }
  }

  Attempts NewAttempts() const {
    return Attempts(options, channel.get(), token.get());
  }

  // `call(context)` again and again until it succeeds or fails for good.
  template <typename Call>
  absl::Status Try(Call call, Attempts attempts) const {
    if (options.offline) return Offline();
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

  // A DescribeTensorResponse as it came, whose checksum is of its bytes.
  absl::StatusOr<std::string> AskForDescription(const v1::TensorSpec& spec,
                                                Attempts attempts) const {
    v1::DescribeTensorRequest request;
    *request.mutable_spec() = spec;
    grpc::ByteBuffer response;
    const absl::Status status = Try(
        [&](grpc::ClientContext* context) {
          return CallUnary(channel, kDescribe, request, context, &response);
        },
        std::move(attempts));
    if (!status.ok()) return status;
    grpc::Slice slice;
    if (!response.DumpToSingleSlice(&slice).ok()) {
      return absl::InternalError("DescribeTensor: the answer cannot be read");
    }
    return std::string(reinterpret_cast<const char*>(slice.begin()),
                       slice.size());
  }

  // What the cache has, else what the server would send, which is kept.
  absl::StatusOr<v1::TensorHeader> Describe(const v1::TensorSpec& spec) const {
    const std::string key = CacheKey(spec);
    if (MayTrust(spec)) {
      if (std::optional<Tensor> found = cache->Find(key)) {
        return found->header();
      }
      auto header = HeaderIn(cache->FindDescription(key));
      if (header.ok()) return header;
      if (options.offline) return Missing(spec);
    }
    const auto answer = AskForDescription(spec, NewAttempts());
    if (!answer.ok()) return answer.status();
    auto header = HeaderIn(*answer);
    if (!header.ok()) return header;
    sizes.Learn(spec, header->total_bytes());
    if (cache != nullptr) cache->StoreDescription(key, *answer);
    return header;
  }

  // What the cache has, else what `fetch()` gives, which is kept.
  absl::StatusOr<Tensor> Get(
      const v1::TensorSpec& spec, const Attempts& attempts,
      absl::FunctionRef<absl::StatusOr<Tensor>()> fetch) const {
    if (cache == nullptr) return fetch();
    const std::string key = CacheKey(spec);
    auto found = Find(key, spec);
    if (!found.ok()) return found.status();
    if (found->has_value()) return WithinBound(**std::move(found));
    const auto draft = Lock(key, attempts.deadline());
    if (!draft.ok()) return draft.status();
    found = Find(key, spec);  // whoever had the lock may have brought it
    if (!found.ok()) return found.status();
    if (found->has_value()) return WithinBound(**std::move(found));
    // It may be there under another request.
    const auto answer = AskForDescription(spec, attempts);
    if (!answer.ok()) return answer.status();
    const auto header = HeaderIn(*answer);
    if (!header.ok()) return header.status();
    sizes.Learn(spec, header->total_bytes());
    if (auto same = cache->Find(key, header->fingerprint())) {
      return WithinBound(*std::move(same));
    }
    absl::StatusOr<Tensor> tensor = fetch();
    if (tensor.ok() && *draft != nullptr) {
      auto kept =
          cache->Store(key, draft->get(), *tensor, spec.output().mask());
      if (kept.has_value()) return *std::move(kept);
    }
    return tensor;
  }

  // What the cache has, without a call; nothing where a server has to be asked.
  // NOT_FOUND where it may not be.
  absl::StatusOr<std::optional<Tensor>> Find(const std::string& key,
                                             const v1::TensorSpec& spec) const {
    if (!MayTrust(spec)) return std::nullopt;
    std::optional<Tensor> found = cache->Find(key);
    if (!found.has_value() && options.offline) return Missing(spec);
    return found;
  }

  // The right to fetch the answer to a request, once nobody else has it; null
  // where the folder cannot be written.
  absl::StatusOr<std::unique_ptr<Draft>> Lock(const std::string& key,
                                              absl::Time deadline) const {
    for (absl::Duration pause = kFirstPause;;
         pause = std::min(2 * pause, kLargestPause)) {
      absl::StatusOr<std::unique_ptr<Draft>> draft = cache->TryLock(key);
      if (!draft.ok()) {
        cache->Warn("cannot be written", draft.status());
        return nullptr;
      }
      if (*draft != nullptr) return draft;
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) {
        return absl::DeadlineExceededError(
            absl::StrCat("timeout: ", absl::FormatDuration(options.timeout),
                         " are over, while another call fetches the same"));
      }
      absl::SleepFor(std::min(pause, left));
    }
  }

  absl::StatusOr<Tensor> WithinBound(Tensor tensor) const {
    const absl::Status status =
        CheckHeader(tensor.header(), options.max_tensor_bytes);
    if (!status.ok()) return status;
    return tensor;
  }

  // Whether a request means what it meant when it was filed.
  bool MayTrust(const v1::TensorSpec& spec) const {
    return cache != nullptr && (options.offline || !NamesATable(spec));
  }

  absl::Status Missing(const v1::TensorSpec& spec) const {
    return absl::NotFoundError(absl::StrCat(
        "offline: ", cache->folder(), " does not have ", Brief(spec),
        "; export it, or get it once, in these words, with a client that has "
        "this cache and is not offline"));
  }

  absl::StatusOr<v1::TensorHeader> Fetch(const v1::TensorSpec& spec,
                                         const ReserveFn& reserve,
                                         const ProgressFn& progress,
                                         const Attempts& attempts) const {
    Payload payload(options.max_tensor_bytes, reserve, progress);
    Download download(spec, options.streams, attempts, &channels, &sizes,
                      &payload);
    if (absl::Status status = download.Run(); !status.ok()) return status;
    return payload.header();
  }

  const ClientOptions options;
  const std::unique_ptr<BearerToken> token;  // null: none
  mutable Channels channels;
  const std::shared_ptr<grpc::Channel> channel;  // the first of them
  const std::unique_ptr<v1::AttentionBiasService::Stub> stub;
  std::unique_ptr<DiskCache> cache;  // null: none
  mutable KnownSizes sizes;
};

Client::Client(std::shared_ptr<const Connection> connection)
    : connection_(std::move(connection)) {}

absl::StatusOr<Client> Client::Create(const ClientOptions& options) {
  if (absl::Status status = Validate(options); !status.ok()) return status;
  absl::StatusOr<std::string> target = TargetFrom(options.target);
  if (!target.ok()) return target.status();
  absl::StatusOr<std::string> folder = CacheFolderFrom(options.cache_folder);
  if (!folder.ok()) return folder.status();
  absl::StatusOr<TlsOptions> tls = TlsFrom(options.tls);
  if (!tls.ok()) return tls.status();
  absl::StatusOr<std::unique_ptr<BearerToken>> token =
      BearerToken::From(options);
  if (!token.ok()) return token.status();
  if (*token != nullptr && !tls->enabled && !IsOnThisMachine(*target)) {
    return absl::InvalidArgumentError(absl::StrCat(
        (*token)->name(), ": got one for ", *target,
        ", which is not on this machine, in plaintext that others could read: ",
        "set ClientOptions::tls"));
  }
  if (folder->empty() && (options.offline || options.cache_bytes.has_value())) {
    const std::string got =
        options.offline
            ? "offline: got true"
            : absl::StrCat("cache_bytes: got ", *options.cache_bytes);
    return absl::InvalidArgumentError(absl::StrCat(
        got, " without a cache, want cache_folder, or ATTNBIAS_CACHE_DIR"));
  }
  ClientOptions resolved = options;
  resolved.target = *std::move(target);
  resolved.cache_folder = *std::move(folder);
  resolved.tls = *std::move(tls);
  return Client(
      std::make_shared<const Connection>(resolved, *std::move(token)));
}

absl::StatusOr<v1::TensorHeader> Client::Describe(
    const v1::TensorSpec& spec) const {
  return connection_->Describe(spec);
}

absl::StatusOr<Tensor> Client::Get(const v1::TensorSpec& spec,
                                   const ProgressFn& progress) const {
  const Attempts attempts = connection_->NewAttempts();
  return connection_->Get(spec, attempts, [&]() -> absl::StatusOr<Tensor> {
    AlignedBytes bytes;
    auto header = connection_->Fetch(
        spec,
        [&bytes](const v1::TensorHeader& h)
            -> absl::StatusOr<absl::Span<std::byte>> {
          bytes.reset();
          auto allocated = Allocate(h.total_bytes());
          if (!allocated.ok()) return allocated.status();
          bytes = *std::move(allocated);
          return absl::MakeSpan(bytes.get(),
                                static_cast<size_t>(h.total_bytes()));
        },
        progress, attempts);
    if (!header.ok()) return header.status();
    return Tensor(*std::move(header), std::move(bytes));
  });
}

absl::StatusOr<v1::TensorHeader> Client::GetInto(
    const v1::TensorSpec& spec, absl::Span<std::byte> out,
    const ProgressFn& progress) const {
  const ReserveFn reserve = [out](const v1::TensorHeader& header)
      -> absl::StatusOr<absl::Span<std::byte>> {
    if (static_cast<int64_t>(out.size()) < header.total_bytes()) {
      return absl::InvalidArgumentError(absl::StrCat("out: got ", out.size(),
                                                     " bytes, want at least ",
                                                     header.total_bytes()));
    }
    return out;
  };
  const Attempts attempts = connection_->NewAttempts();
  bool is_there = false;
  const auto tensor =
      connection_->Get(spec, attempts, [&]() -> absl::StatusOr<Tensor> {
        auto header = connection_->Fetch(spec, reserve, progress, attempts);
        if (!header.ok()) return header.status();
        is_there = true;
        return Tensor(*std::move(header),
                      std::shared_ptr<const std::byte[]>(
                          std::shared_ptr<void>(),  // not owned
                          out.data()));
      });
  if (!tensor.ok()) return tensor.status();
  if (!is_there) {
    if (auto room = reserve(tensor->header()); !room.ok()) return room.status();
    std::ranges::copy(tensor->bytes(), out.begin());
  }
  return tensor->header();
}

absl::StatusOr<v1::GetServerInfoResponse> Client::ServerInfo() const {
  v1::GetServerInfoResponse response;
  const absl::Status status = connection_->Try(
      [&](grpc::ClientContext* context) {
        return connection_->stub->GetServerInfo(
            context, v1::GetServerInfoRequest(), &response);
      },
      connection_->NewAttempts());
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<std::vector<v1::TableInfo>> Client::ListTables() const {
  std::vector<v1::TableInfo> tables;
  v1::ListTablesRequest request;
  request.set_page_size(kTablesPerPage);
  do {
    v1::ListTablesResponse response;
    const absl::Status status = connection_->Try(
        [&](grpc::ClientContext* context) {
          return connection_->stub->ListTables(context, request, &response);
        },
        connection_->NewAttempts());
    if (!status.ok()) return status;
    tables.insert(tables.end(), response.tables().begin(),
                  response.tables().end());
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return tables;
}

absl::StatusOr<Health> Client::CheckHealth(const std::string& service) const {
  if (connection_->options.offline) return Offline();
  return attnbias::CheckHealth(connection_->channel, service,
                               connection_->NewAttempts());
}

}  // namespace attnbias
