// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/errors.h"
#include "core/base/mutex.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "inference/inference.grpc.pb.h"
#include "server/service/call_reactor.h"
#include "server/service/oip/infer.h"
#include "server/service/oip/model.h"

namespace attnbias {
namespace {

// The counters of ModelStatistics. Thread-safe.
class InferenceStatistics {
 public:
  InferenceStatistics() {
    for (const Model& model : Model::All()) {
      inference::ModelStatistics& statistics = models_.emplace_back();
      statistics.set_name(model.name());
      statistics.set_version(kModelVersion);
      statistics.mutable_inference_stats()->mutable_success();
      statistics.mutable_inference_stats()->mutable_fail();
    }
  }

  void Add(const Model& model, bool success, std::chrono::nanoseconds duration) {
    MutexLock lock(mutex_);
    inference::ModelStatistics& statistics = models_[model.index()];
    inference::InferStatistics& all = *statistics.mutable_inference_stats();
    inference::StatisticDuration& kind = success ? *all.mutable_success() : *all.mutable_fail();
    kind.set_count(kind.count() + 1);
    kind.set_ns(kind.ns() + duration.count());
    if (!success) return;
    statistics.set_inference_count(statistics.inference_count() + 1);
    statistics.set_execution_count(statistics.execution_count() + 1);
    statistics.set_last_inference(std::chrono::duration_cast<std::chrono::milliseconds>(
                                      std::chrono::system_clock::now().time_since_epoch())
                                      .count());
  }

  inference::ModelStatistics Of(const Model& model) const {
    MutexLock lock(mutex_);
    return models_[model.index()];
  }

 private:
  mutable Mutex mutex_;
  std::vector<inference::ModelStatistics> models_ ABSL_GUARDED_BY(mutex_);
};

// Maximum size of a ModelInfer response in bytes. The client must read it within
// --write-stall-timeout.
constexpr int64_t kMaxInferBytes = int64_t{256} << 20;

struct InferWork {
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  InferRequest request;
  PlanPtr plan;
  std::vector<Part> outputs;
  Pieces pieces;
  PayloadPtr payload;

  // Sets all fields except the payload.
  absl::Status MakePlan(Call& call, inference::ModelInferRequest asked) {
    ATTNBIAS_RETURN_IF_ERROR(request.Decode(std::move(asked)));
    ATTNBIAS_ASSIGN_OR_RETURN(plan, call.MakePlan(std::move(request.spec), ""));
    ATTNBIAS_ASSIGN_OR_RETURN(outputs, ChooseOutputs(request, *plan));
    pieces = Pieces(outputs);
    return absl::OkStatus();
  }

  void AddTo(InferenceStatistics& statistics, bool success) const {
    if (request.model == nullptr) return;
    statistics.Add(*request.model, success, std::chrono::steady_clock::now() - start);
  }
};

// A ModelInfer call: planned -> computed (unless cached) -> read piece by piece -> answered.
class InferReactor final : public CallReactor<grpc::ServerUnaryReactor> {
 public:
  InferReactor(ServerState* server_state, InferenceStatistics* statistics,
               grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
               grpc::ByteBuffer* response)
      : CallReactor(server_state, Method::kModelInfer, context),
        statistics_(*statistics),
        response_(*response) {
    Begin(*request, [this, request] {
      if (absl::Status status = MakePlan(*request); !status.ok()) {
        return End(status);
      }
      GetPayload(work_.plan, [this](PayloadPtr payload) {
        work_.payload = std::move(payload);
        ReadNext();
      });
    });
  }

  ~InferReactor() override { work_.AddTo(statistics_, answered_); }

 private:
  absl::Status MakePlan(const grpc::ByteBuffer& bytes) {
    ATTNBIAS_ASSIGN_OR_RETURN(auto request, call_.Parse<inference::ModelInferRequest>(bytes));
    ATTNBIAS_RETURN_IF_ERROR(work_.MakePlan(call_, std::move(request)));
    for (const Part& part : work_.outputs) bytes_ += part.size_bytes;
    if (bytes_ <= kMaxInferBytes) return absl::OkStatus();
    return Invalid("outputs: got ", bytes_, " bytes, want at most ", kMaxInferBytes,
                   " in one message; use ModelStreamInfer, or request less");
  }

  void ReadNext() {
    call_.phases().Enter(Phase::kCompute);
    const Range bytes = work_.pieces.Take().bytes;
    work_.payload->Read(bytes.begin, bytes.size(), [this](absl::StatusOr<Chunk> chunk) {
      if (caller_->cancelled()) return End(call_.WhyCancelled());
      if (!chunk.ok()) return End(chunk.status());
      chunks_.push_back(*std::move(chunk));
      if (work_.pieces.AreAllTaken()) return Answer();
      call_.phases().Enter(Phase::kWait);
      call_.server_state().executor.Schedule(caller_, [this] { ReadNext(); });
    });
  }

  void Answer() {
    response_ = FrameInferResponse(work_.request, *work_.plan, work_.outputs, chunks_);
    call_.ReserveSendTime(bytes_);
    call_.AnswerSent(bytes_);
    answered_ = true;
    End(absl::OkStatus());
  }

  InferenceStatistics& statistics_;
  grpc::ByteBuffer& response_;
  InferWork work_;
  // Size of the outputs, and their chunks.
  int64_t bytes_ = 0;
  std::vector<Chunk> chunks_;
  bool answered_ = false;
};

// A ModelStreamInfer call: answers each request with pieces of its outputs or with an error.
class StreamInferReactor final : public RequestPump {
 public:
  StreamInferReactor(ServerState* server_state, InferenceStatistics* statistics,
                     grpc::CallbackServerContext* context)
      : RequestPump(server_state, Method::kModelStreamInfer, context), statistics_(*statistics) {
    Start();
  }

 private:
  bool IsUnfinished() const override { return !work_.pieces.AreAllTaken(); }
  absl::Status NoRequest() const override { return absl::OkStatus(); }

  void Make() override {
    if (IsUnfinished()) return MakePiece();
    const Incoming incoming = TakeRequest();
    if (absl::Status status = call_.CheckCancelled(); !status.ok()) {
      return Made(status);
    }
    work_ = InferWork();
    if (!incoming.held.ok()) return Fail(incoming.held);
    auto request = call_.Parse<inference::ModelInferRequest>(incoming.bytes);
    if (!request.ok()) return Fail(request.status());
    absl::Status status = work_.MakePlan(call_, *std::move(request));
    if (!status.ok()) return Fail(status);
    TryGetPayload(work_.plan, [this](absl::StatusOr<PayloadPtr> payload) {
      if (!payload.ok()) return Fail(payload.status());
      work_.payload = *std::move(payload);
      MakePiece();
    });
  }

  void MakePiece() {
    Piece piece = work_.pieces.Take();
    const Range bytes = piece.bytes;
    work_.payload->Read(
        bytes.begin, bytes.size(), [this, piece = std::move(piece)](absl::StatusOr<Chunk> chunk) {
          if (!chunk.ok()) return Fail(chunk.status());
          const bool last = !IsUnfinished();
          Message message{FrameStreamResponse(work_.request, *work_.plan, piece, last, *chunk),
                          piece.bytes.size()};
          if (last) EndWork(true);
          Made(std::move(message));
        });
  }

  // Answers with an error. The stream continues, unless the client has cancelled.
  void Fail(const absl::Status& status) {
    if (caller_->cancelled()) return Made(status);
    Message message{FrameStreamError(work_.request.id, status), 0};
    EndWork(false);
    Made(std::move(message));
  }

  void EndWork(bool success) {
    work_.AddTo(statistics_, success);
    work_ = InferWork();
    call_.ForgetRequest();
  }

  InferenceStatistics& statistics_;
  // Used by one Make at a time.
  InferWork work_;
};

// Answers health calls under any load, even from unauthenticated clients.
class InferenceService final : public RawService<inference::GRPCInferenceService::Service> {
 public:
  InferenceService(ServerState* server_state, const std::function<bool()>& ready)
      : RawService(server_state, Method::kServerMetadata) {
    AddHealth<inference::ServerLiveRequest, inference::ServerLiveResponse>(
        kServerLive, [](const auto&, auto* response) { response->set_live(true); });
    AddHealth<inference::ServerReadyRequest, inference::ServerReadyResponse>(
        kServerReady, [ready](const auto&, auto* response) { response->set_ready(ready()); });
    AddHealth<inference::ModelReadyRequest, inference::ModelReadyResponse>(
        kModelReady, [ready](const auto& request, auto* response) {
          response->set_ready(ready() && Model::Find("", request.name(), request.version()).ok());
        });
  }

 private:
  // Indices of the health methods in GRPCInferenceService. The methods before them are in Method.
  enum HealthMethod : uint8_t { kServerLive = 7, kServerReady, kModelReady };

  template <typename Request, typename Response, typename Fill>
  void AddHealth(HealthMethod method, Fill fill) {
    const auto answer = [fill](grpc::CallbackServerContext* context, const Request* request,
                               Response* response) {
      fill(*request, response);
      grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
      reactor->Finish(grpc::Status::OK);
      return reactor;
    };
    MarkMethodCallback(method, new grpc::internal::CallbackUnaryHandler<Request, Response>(answer));
  }
};

}  // namespace

std::unique_ptr<grpc::Service> MakeInferenceService(ServerState* server_state,
                                                    std::function<bool()> ready) {
  auto service = std::make_unique<InferenceService>(server_state, ready);
  const auto statistics = std::make_shared<InferenceStatistics>();
  service->Start<grpc::internal::CallbackUnaryHandler>(Method::kModelInfer, [=](auto*... call) {
    return new InferReactor(server_state, statistics.get(), call...);
  });
  service->Start<grpc::internal::CallbackBidiHandler>(
      Method::kModelStreamInfer, [=](grpc::CallbackServerContext* context) {
        return new StreamInferReactor(server_state, statistics.get(), context);
      });
  service->Answer<inference::ServerMetadataRequest, inference::ServerMetadataResponse>(
      Method::kServerMetadata, [](Call&, const auto&, auto* answer) {
        answer->set_name(kPlatform);
        answer->set_version(ATTNBIAS_VERSION);
        for (const char* const name : {"model_configuration", "parameters", "statistics"}) {
          answer->add_extensions(name);
        }
        return absl::OkStatus();
      });
  service->Answer<inference::ModelMetadataRequest, inference::ModelMetadataResponse>(
      Method::kModelMetadata, [](Call&, const auto& request, auto* answer) {
        ATTNBIAS_ASSIGN_OR_RETURN(const Model* const model,
                                  Model::Find("", request.name(), request.version()));
        *answer = model->Metadata();
        return absl::OkStatus();
      });
  service->Answer<inference::ModelConfigRequest, inference::ModelConfigResponse>(
      Method::kModelConfig, [](Call&, const auto& request, auto* answer) {
        ATTNBIAS_ASSIGN_OR_RETURN(const Model* const model,
                                  Model::Find("", request.name(), request.version()));
        *answer->mutable_config() = model->Config();
        return absl::OkStatus();
      });
  service->Answer<inference::ModelStatisticsRequest, inference::ModelStatisticsResponse>(
      Method::kModelStatistics, [statistics](Call&, const auto& request, auto* answer) {
        if (request.name().empty()) {
          for (const Model& model : Model::All())
            *answer->add_model_stats() = statistics->Of(model);
          return absl::OkStatus();
        }
        ATTNBIAS_ASSIGN_OR_RETURN(const Model* const model,
                                  Model::Find("", request.name(), request.version()));
        *answer->add_model_stats() = statistics->Of(*model);
        return absl::OkStatus();
      });
  service->Answer<inference::RepositoryIndexRequest, inference::RepositoryIndexResponse>(
      Method::kRepositoryIndex, [](Call&, const auto&, auto* answer) {
        for (const Model& model : Model::All()) {
          auto& index = *answer->add_models();
          index.set_name(model.name());
          index.set_version(kModelVersion);
          index.set_state("READY");
        }
        return absl::OkStatus();
      });
  return service;
}

}  // namespace attnbias
