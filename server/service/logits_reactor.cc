// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attnbias/v1/logits.pb.h"
#include "core/base/errors.h"
#include "core/cache/byte_budget.h"
#include "core/checksum/crc32c.h"
#include "core/logits/positional_logits.h"
#include "core/mount/registry.h"
#include "server/service/call_reactor.h"
#include "server/service/grpc_status.h"
#include "server/service/messages.h"
#include "server/service/tensor_service.h"

namespace attnbias {
namespace {

// A call's vectors may take at most the memory budget divided by this.
constexpr int64_t kLargestVectorsDivisor = 8;

absl::Status NoSpec() { return Invalid("spec: not set, want it in the first message"); }

class LogitsReactor final : public RequestPump {
 public:
  LogitsReactor(ServerState* server_state, grpc::CallbackServerContext* context)
      : RequestPump(server_state, Method::kComputeLogits, context) {
    Start();
  }

  ~LogitsReactor() override {
    call_.server_state().engine.cache().RemoveEvictable(evictable_.lock().get());
  }

 private:
  // The rows of a request.
  struct Work {
    BudgetedBuffer memory;
    RowBlock block;
    // Number of lines in the result, and the number already computed.
    int64_t lines = 0;
    int64_t made = 0;
  };

  bool IsUnfinished() const override { return work_.made < work_.lines; }
  absl::Status NoRequest() const override { return NoSpec(); }

  void Make() override {
    if (IsUnfinished()) return Compute();
    const Incoming incoming = TakeRequest();
    if (!incoming.held.ok()) return Made(incoming.held);
    ByteBudget::Reservation decoded_memory;
    absl::StatusOr<v1::ComputeLogitsRequest> request = ParseNext(incoming.bytes, decoded_memory);
    if (!request.ok()) return Made(request.status());
    if (plan_ == nullptr) {
      absl::StatusOr<LogitsPlanPtr> plan = MakePlan(*request);
      if (!plan.ok()) return Made(plan.status());
      plan_ = *std::move(plan);
      call_.phases().Enter(Phase::kCompute);
      return Prepare([this, crc32c = ChecksumOf(incoming.bytes)] {
        MakeEvictable();
        Made(Message{FrameHeader<v1::ComputeLogitsResponse>(HeaderOf(*plan_), crc32c), 0});
      });
    }
    if (absl::Status status = Accept(*request); !status.ok()) return Made(status);
    logits_ = evictable_.lock();
    if (logits_ == nullptr) return Prepare([this] { Compute(); });
    call_.server_state().engine.cache().RemoveEvictable(logits_.get());
    Compute();
  }

  absl::StatusOr<v1::ComputeLogitsRequest> ParseNext(const grpc::ByteBuffer& bytes,
                                                     ByteBudget::Reservation& memory) {
    ATTNBIAS_RETURN_IF_ERROR(call_.CheckCancelled());
    // The spec is kept for the duration of the call, but rows only until they have been copied.
    using Request = v1::ComputeLogitsRequest;
    if (plan_ == nullptr) return call_.Parse<Request>(bytes);
    return ParseRequest<Request>(bytes, [&](int64_t size) -> absl::Status {
      ATTNBIAS_ASSIGN_OR_RETURN(memory,
                                call_.server_state().engine.cache().Reserve(size, *caller_));
      return absl::OkStatus();
    });
  }

  absl::StatusOr<LogitsPlanPtr> MakePlan(const v1::ComputeLogitsRequest& request) const {
    if (!request.has_spec()) return NoSpec();
    for (const auto& [field, is_set] :
         {std::pair("first_row", request.first_row() != 0),
          std::pair("num_rows", request.num_rows() != 0), std::pair("crc32c", request.has_crc32c()),
          std::pair("data", !request.data().empty())}) {
      if (!is_set) continue;
      return Invalid(field, ": set together with the spec, want it only in later messages");
    }
    v1::LogitsSpec spec = request.spec();
    const absl::StatusOr<Tables> tables = TakeTables(*call_.tables(), spec);
    if (!tables.ok()) return Under("spec", tables.status());
    absl::StatusOr<LogitsPlanPtr> plan = LogitsPlan::Make(
        std::move(spec), *tables,
        {.max_vector_bytes =
             call_.server_state().engine.options().memory_budget_bytes / kLargestVectorsDivisor,
         .max_row_bytes = kMaxUnaryBytes});
    if (!plan.ok()) return Under("spec", plan.status());
    return plan;
  }

  // Computes the vectors, then calls `done`.
  template <typename Done>
  void Prepare(Done done) {
    ServerState& server_state = call_.server_state();
    PositionalLogits::Create(
        plan_,
        {.executor = server_state.executor,
         .kernels = server_state.engine.kernels(),
         .allocate = [&engine = server_state.engine, caller = caller_](
                         int64_t bytes) { return engine.cache().Allocate(bytes, *caller); },
         .reserve = [&engine = server_state.engine, caller = caller_](
                        int64_t bytes) { return engine.cache().Reserve(bytes, *caller); }},
        caller_, [this, done](absl::StatusOr<PositionalLogitsPtr> logits) {
          if (!logits.ok()) return Made(logits.status());
          logits_ = *std::move(logits);
          done();
        });
  }

  void MakeEvictable() {
    evictable_ = logits_;
    const int64_t bytes = logits_->memory_bytes();
    call_.server_state().engine.cache().AddEvictable(std::move(logits_), bytes);
  }

  // Copies the data to memory that counts against the budget until the response is complete.
  absl::Status Accept(const v1::ComputeLogitsRequest& request) {
    if (request.has_spec()) {
      return Invalid("spec: got a second spec, want just one, in the first message");
    }
    const std::string& data = request.data();
    const auto size = static_cast<int64_t>(data.size());
    ATTNBIAS_RETURN_IF_ERROR(plan_->CheckRows(request.first_row(), request.num_rows(), size));
    if (request.has_crc32c()) {
      const uint32_t crc32c = Crc32c(data.data(), data.size());
      if (crc32c != request.crc32c()) {
        return absl::DataLossError(absl::StrCat("crc32c: got ", request.crc32c(), ", want ", crc32c,
                                                ", the checksum of the data received"));
      }
    }
    ATTNBIAS_ASSIGN_OR_RETURN(work_.memory, call_.server_state().engine.cache().Allocate(
                                                std::max<int64_t>(size, 1), *caller_));
    std::memcpy(work_.memory.bytes.data(), data.data(), data.size());
    work_.block = {request.first_row(), request.num_rows(), work_.memory.bytes.data()};
    work_.lines = plan_->spec().num_heads() * request.num_rows();
    work_.made = 0;
    return absl::OkStatus();
  }

  void Compute() {
    const int64_t row_bytes = plan_->output_row_bytes();
    const int64_t most = std::max<int64_t>(kDefaultChunkBytes / row_bytes, 1);
    const Range lines = {work_.made, std::min(work_.made + most, work_.lines)};
    absl::StatusOr<BudgetedBuffer> memory =
        call_.server_state().engine.cache().Allocate(lines.size() * row_bytes, *caller_);
    if (!memory.ok()) return Made(memory.status());
    const auto owner = std::make_shared<BudgetedBuffer>(*std::move(memory));
    logits_->Compute(work_.block, lines, owner->bytes.data(), caller_,
                     [this, lines, owner](const absl::Status& status) {
                       if (!status.ok()) return Made(status);
                       Send(lines, owner);
                     });
  }

  void Send(Range lines, const std::shared_ptr<const BudgetedBuffer>& answer) {
    work_.made = lines.end;
    Chunk chunk;
    chunk.owner = answer;
    chunk.memory = {answer->bytes.data(), static_cast<size_t>(answer->bytes.size())};
    chunk.pieces = {chunk.memory};
    chunk.crc32c = Crc32c(chunk.memory.data(), chunk.memory.size());
    v1::ComputeLogitsResponse response;
    response.set_first_row(work_.block.first_row);
    response.set_offset(lines.begin * plan_->output_row_bytes());
    if (!IsUnfinished()) {
      work_.memory = BudgetedBuffer();
      MakeEvictable();
    }
    const auto size = static_cast<int64_t>(chunk.memory.size());
    Made(Message{FrameChunk(std::move(response), chunk), size});
  }

  // Used by one Make at a time.
  LogitsPlanPtr plan_;
  PositionalLogitsPtr logits_;
  // Between requests the cache may evict the vectors, which are then computed again.
  std::weak_ptr<const PositionalLogits> evictable_;
  Work work_;
};

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ComputeLogits(
    ServerState* server_state, grpc::CallbackServerContext* context) {
  return new LogitsReactor(server_state, context);
}

}  // namespace attnbias
