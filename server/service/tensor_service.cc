// SPDX-License-Identifier: Apache-2.0
#include "server/service/tensor_service.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "attnbias/v1/service.grpc.pb.h"
#include "core/base/errors.h"
#include "core/engine/engine.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/service/call_reactor.h"
#include "server/service/messages.h"
#include "server/service/plan_memo.h"

namespace attnbias {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr int kDefaultPageSize = 100;
constexpr int kMaxPageSize = 1000;
// Prefix of a page token; the rest is the last name on the page. The next page begins after that
// name, even if tables were mounted in the meantime.
constexpr char kTokenPrefix[] = "after:";

// Cached responses of up to this size are produced on gRPC's own threads, since switching to
// another thread would take longer.
constexpr int64_t kInlineBytes = int64_t{1} << 20;

ptrdiff_t CommonPrefix(const std::string& a, const std::string& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

// Returns the mounted table with this digest. If several tables have it, returns the one whose name
// has the longest prefix in common with the name of `own`.
const MountedTable* Mounted(const std::string& sha256, const MountedTable& own,
                            const TableSet& tables) {
  const MountedTable* best = nullptr;
  ptrdiff_t most = 0;
  for (const MountedTable& table : tables.tables()) {
    if (table.table.sha256() != sha256) continue;
    const ptrdiff_t alike = CommonPrefix(table.name, own.name);
    if (best == nullptr || alike > most) best = &table;
    most = std::max(most, alike);
  }
  return best;
}

// Adds the names of mounted tables to the digests in `message`.
void NameTables(const MountedTable& own, const TableSet& tables, Message* message) {
  const auto* reflection = message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->message_type() == nullptr) continue;
    if (field->is_repeated()) {
      for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
        NameTables(own, tables, reflection->MutableRepeatedMessage(message, field, i));
      }
      continue;
    }
    Message* inner = reflection->MutableMessage(message, field);
    if (field->message_type() != v1::TableRef::descriptor()) {
      NameTables(own, tables, inner);
      continue;
    }
    auto* ref = static_cast<v1::TableRef*>(inner);
    if (const auto* named = Mounted(ref->sha256(), own, tables)) {
      ref->set_name(named->name);
    }
  }
}

void EncodeInfo(const MountedTable& mounted, const TableSet& tables, v1::TableInfo* info) {
  const Table& table = mounted.table;
  info->set_name(mounted.name);
  info->set_sha256(table.sha256());
  info->set_data_type(static_cast<v1::DataType>(table.data_type()));
  info->mutable_shape()->Assign(table.shape().begin(), table.shape().end());
  info->set_source(mounted.source);
  if (!mounted.spec.has_value()) return;
  *info->mutable_spec() = *mounted.spec;
  NameTables(mounted, tables, info->mutable_spec());
}

}  // namespace

absl::Status ListTables(const v1::ListTablesRequest& request, const TableSet& tables,
                        v1::ListTablesResponse* response) {
  if (request.page_size() < 0 || request.page_size() > kMaxPageSize) {
    return Invalid("page_size: got ", request.page_size(), ", want an integer in [0, ",
                   kMaxPageSize, "]");
  }
  absl::string_view after = request.page_token();
  if (!after.empty() && !absl::ConsumePrefix(&after, kTokenPrefix)) {
    return Invalid(
        "page_token: got a token that this server did not issue, want the "
        "next_page_token of the previous response");
  }
  const int size = request.page_size() == 0 ? kDefaultPageSize : request.page_size();
  const auto all = tables.tables();
  auto next = std::upper_bound(all.begin(), all.end(), after,
                               [](absl::string_view name, const MountedTable& table) {
                                 return name < absl::string_view(table.name);
                               });
  for (; next != all.end() && response->tables_size() < size; ++next) {
    EncodeInfo(*next, tables, response->add_tables());
  }
  if (next != all.end()) {
    response->set_next_page_token(absl::StrCat(kTokenPrefix, (next - 1)->name));
  }
  return absl::OkStatus();
}

namespace {

// Returns INVALID_ARGUMENT if a message with only the header is larger than stock clients accept.
// Only two long lists of negative positions make a header that large.
absl::Status CheckHeaderSize(int64_t message_bytes) {
  if (message_bytes <= kMaxUnaryResponseBytes) return absl::OkStatus();
  return Invalid("spec: got lists of positions that need a header of ", message_bytes,
                 " bytes, want at most ", kMaxUnaryResponseBytes,
                 "; request fewer positions at a time");
}

absl::Status TooLargeForGet(const std::string& got, int64_t want) {
  return WithReason(Invalid("spec: got ", got, " bytes, want at most ", want,
                            " for GetTensor; StreamTensor has no such limit"),
                    "TENSOR_TOO_LARGE_FOR_UNARY");
}

// Returns the key under which a plan is stored.
std::string KeyOf(Method method, const grpc::ByteBuffer& request) {
  grpc::Slice slice;
  if (!request.DumpToSingleSlice(&slice).ok()) return "";
  std::string key(slice.begin(), slice.end());
  key.push_back(static_cast<char>(method));
  return key;
}

// Returns how many bytes of a payload fit into one message with this header.
int64_t RoomBeside(const std::string& header) {
  return kMaxUnaryResponseBytes - kFramingBytes - static_cast<int64_t>(header.size());
}

// A call for a tensor: planned (unless remembered) -> computed (unless cached) -> answered. The
// last step calls End. DescribeTensor ends after planning.
//
// A unary response is sent as a one-message stream. gRPC sends both in the same way, and the fields
// of all responses have the same numbers.
class TensorReactor final : public OutputPump<grpc::ServerWriteReactor<grpc::ByteBuffer>> {
 public:
  TensorReactor(ServerState* server_state, Method method, grpc::CallbackServerContext* context,
                const grpc::ByteBuffer* request)
      : OutputPump(server_state, method, context), method_(method), request_(*request) {
    if (absl::Status status = call_.CheckCancelled(); !status.ok()) {
      End(status);
    } else if (!AnswerAtOnce()) {
      Begin(request_, [this] { Prepare(); });
    }
  }

 private:
  // Answers on gRPC's thread if that is faster than switching threads.
  bool AnswerAtOnce() {
    if (!IsRemembered()) return false;
    ServerState& server_state = call_.server_state();
    planned_ = server_state.plan_memo.Find(KeyOf(method_, request_), call_.tables());
    if (planned_ == nullptr) return false;
    call_.SetPlan(planned_->plan);
    if (planned_->plan->total_bytes() > kInlineBytes) return false;
    payload_ = server_state.engine.Find(planned_->plan, caller_);
    if (payload_ == nullptr || !payload_->IsReadAtOnce()) return false;
    if (absl::Status status = Admit(request_); !status.ok()) {
      End(status);
    } else {
      call_.phases().Enter(Phase::kCompute);
      Answer();
    }
    return true;
  }

  bool IsRemembered() const {
    return method_ != Method::kDescribeTensor && request_.Length() < PlanMemo::kMaxRememberedBytes;
  }

  void Prepare() {
    if (planned_ != nullptr) return Compute();
    const absl::StatusOr<PlannedRequest> planned = Plan();
    if (!planned.ok()) return End(planned.status());
    const auto own = std::make_shared<PlannedRequest>(*planned);
    GetHeader(own->plan, [this, own](const v1::TensorHeader& header) {
      own->header = SerializeHeader<v1::StreamTensorResponse>(header, ChecksumOf(request_));
      if (absl::Status status = CheckSize(*own); !status.ok()) return End(status);
      planned_ = own;
      // Later ranges are requested only once. Storing them would displace frequent requests.
      if (IsRemembered() && planned_->window.bytes.begin == 0) {
        call_.server_state().plan_memo.Insert(KeyOf(method_, request_), call_.tables(), planned_);
      }
      Compute();
    });
  }

  // Plans the request, but does not make the header.
  absl::StatusOr<PlannedRequest> Plan() {
    if (method_ == Method::kStreamTensor) {
      ATTNBIAS_ASSIGN_OR_RETURN(auto request, call_.Parse<v1::StreamTensorRequest>(request_));
      ATTNBIAS_ASSIGN_OR_RETURN(PlanPtr plan, call_.MakePlan(std::move(*request.mutable_spec())));
      ATTNBIAS_ASSIGN_OR_RETURN(StreamWindow window, ResolveStream(request, *plan));
      return PlannedRequest{plan, "", window};
    }
    if (method_ == Method::kDescribeTensor) {
      ATTNBIAS_ASSIGN_OR_RETURN(auto request, call_.Parse<v1::DescribeTensorRequest>(request_));
      ATTNBIAS_ASSIGN_OR_RETURN(PlanPtr plan, call_.MakePlan(std::move(*request.mutable_spec())));
      return PlannedRequest{plan, "", {}};
    }
    ATTNBIAS_ASSIGN_OR_RETURN(auto request, call_.Parse<v1::GetTensorRequest>(request_));
    ATTNBIAS_ASSIGN_OR_RETURN(PlanPtr plan, call_.MakePlan(std::move(*request.mutable_spec())));
    const int64_t payload = plan->total_bytes();
    if (payload > kMaxUnaryBytes) {
      return TooLargeForGet(absl::StrCat("a tensor of ", payload), kMaxUnaryBytes);
    }
    return PlannedRequest{plan, "", {{0, payload}, payload}};
  }

  absl::Status CheckSize(const PlannedRequest& planned) const {
    const auto size = static_cast<int64_t>(planned.header.size());
    const bool is_streamed = method_ == Method::kStreamTensor;
    ATTNBIAS_RETURN_IF_ERROR(CheckHeaderSize(size + (is_streamed ? kFramingBytes : 0)));
    const int64_t payload = planned.plan->total_bytes();
    if (method_ != Method::kGetTensor || payload <= RoomBeside(planned.header)) {
      return absl::OkStatus();
    }
    return TooLargeForGet(absl::StrCat("a tensor of ", payload, " and a header of ", size),
                          kMaxUnaryResponseBytes - kFramingBytes);
  }

  void Compute() {
    if (method_ == Method::kDescribeTensor) {
      const grpc::Slice header(planned_->header);
      return SendOnly(grpc::ByteBuffer(&header, 1), 0);
    }
    call_.phases().Enter(Phase::kCompute);
    // AnswerAtOnce may have found the payload.
    if (payload_ != nullptr) return Answer();
    GetPayload(planned_->plan, [this](PayloadPtr payload) {
      payload_ = std::move(payload);
      Answer();
    });
  }

  // Sends the bytes of payload_ that planned_ selects.
  void Answer() {
    const Range bytes = planned_->window.bytes;
    made_ = bytes.begin;
    const int64_t size = NextSize();
    if (bytes.size() != size) return MakeFirst();
    Read(size, [this, size](absl::StatusOr<grpc::ByteBuffer> message) {
      if (!message.ok()) {
        return End(caller_->cancelled() ? call_.WhyCancelled() : message.status());
      }
      SendOnly(*std::move(message), size);
    });
  }

  // Sends the only message, counts it, and ends the call.
  void SendOnly(grpc::ByteBuffer message, int64_t size) {
    if (method_ != Method::kStreamTensor) {
      call_.ReserveSendTime(size);
    } else if (!call_.TryReserveSendTime(size)) {
      // The pump waits until the message may be sent.
      return Made(Message{std::move(message), size});
    }
    call_.AnswerSent(size);
    only_ = std::move(message);
    StartWriteAndFinish(&only_, grpc::WriteOptions().set_no_compression(),
                        call_.End(absl::OkStatus()));
  }

  // The first message has less room, since it carries the header.
  int64_t NextSize() const {
    const StreamWindow& window = planned_->window;
    const int64_t most = std::min(window.chunk_bytes, window.bytes.end - made_);
    if (header_sent_) return most;
    return std::clamp<int64_t>(RoomBeside(planned_->header), 0, most);
  }

  void Make() override {
    const int64_t size = NextSize();
    Read(size, [this, size](absl::StatusOr<grpc::ByteBuffer> message) {
      if (!message.ok()) return Made(message.status());
      Made(Message{*std::move(message), size});
    });
  }

  // Calls `done` with a message of the next `size` bytes, or with an error.
  template <typename Done>
  void Read(int64_t size, Done done) {
    auto frame = [this, size, done = std::move(done)](const absl::StatusOr<Chunk>& chunk) {
      if (!chunk.ok()) return done(chunk.status());
      v1::StreamTensorResponse response;
      response.set_offset(made_);
      made_ += size;
      const std::string_view header =
          std::exchange(header_sent_, true) ? "" : std::string_view(planned_->header);
      done(FrameChunk(std::move(response), *chunk, header));
    };
    if (size == 0) return frame(Chunk());
    payload_->Read(made_, size, std::move(frame));
  }

  bool HasWork() override { return made_ < planned_->window.bytes.end; }
  bool AwaitsClient() override { return false; }

  const Method method_;
  const grpc::ByteBuffer& request_;
  PlannedRequestPtr planned_;
  PayloadPtr payload_;
  grpc::ByteBuffer only_;  // the only message
  bool header_sent_ = false;
  int64_t made_ = 0;  // offset in the payload up to which bytes have been produced
};

absl::Status CheckStreamFields(const v1::StreamTensorRequest& request) {
  for (const auto& [field, value] : {std::pair("read_offset", request.read_offset()),
                                     std::pair("read_limit", request.read_limit())}) {
    if (value >= 0) continue;
    return Invalid(field, ": got ", value, ", want an integer of at least 0");
  }
  if (request.read_offset() != 0 && request.expected_fingerprint().empty()) {
    return Invalid(
        "expected_fingerprint: not set, want the header's fingerprint if "
        "read_offset is not 0");
  }
  const int64_t chunk = request.max_chunk_bytes();
  if (chunk != 0 && (chunk < kMinChunkBytes || chunk > kMaxChunkBytes)) {
    return Invalid("max_chunk_bytes: got ", chunk, ", want 0 or an integer in [", kMinChunkBytes,
                   ", ", kMaxChunkBytes, "]");
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<grpc::Service> MakeTensorService(ServerState* server_state,
                                                 std::function<v1::GetServerInfoResponse()> info) {
  auto service = std::make_unique<RawService<v1::AttentionBiasService::Service>>(
      server_state, Method::kDescribeTensor);
  for (const Method method : {Method::kDescribeTensor, Method::kGetTensor, Method::kStreamTensor}) {
    service->Start<grpc::internal::CallbackServerStreamingHandler>(
        method, [=](auto*... call) { return new TensorReactor(server_state, method, call...); });
  }
  service->Start<grpc::internal::CallbackBidiHandler>(
      Method::kComputeLogits, [=](auto* context) { return ComputeLogits(server_state, context); });
  service->Answer<v1::ListTablesRequest, v1::ListTablesResponse>(
      Method::kListTables, [](Call& call, const auto& request, auto* answer) {
        return ListTables(request, *call.tables(), answer);
      });
  service->Answer<v1::GetServerInfoRequest, v1::GetServerInfoResponse>(
      Method::kGetServerInfo, [info = std::move(info)](Call&, const auto&, auto* answer) {
        *answer = info();
        return absl::OkStatus();
      });
  return service;
}

absl::StatusOr<StreamWindow> ResolveStream(const v1::StreamTensorRequest& request,
                                           const Plan& plan) {
  ATTNBIAS_RETURN_IF_ERROR(CheckStreamFields(request));
  const std::string& expected = request.expected_fingerprint();
  if (!expected.empty() && expected != plan.fingerprint()) {
    return absl::FailedPreconditionError(
        absl::StrCat("expected_fingerprint: this server would send ", plan.fingerprint(),
                     "; start over from offset 0"));
  }
  const int64_t total = plan.total_bytes();
  const int64_t begin = request.read_offset();
  if (begin > total) {
    return absl::OutOfRangeError(absl::StrCat("read_offset: got ", begin, ", want at most ", total,
                                              ", the size of the payload"));
  }
  StreamWindow window;
  window.bytes = {begin, total};
  if (request.read_limit() != 0) {
    window.bytes.end = begin + std::min(request.read_limit(), total - begin);
  }
  window.chunk_bytes =
      request.max_chunk_bytes() == 0 ? kDefaultChunkBytes : request.max_chunk_bytes();
  return window;
}

}  // namespace attnbias
