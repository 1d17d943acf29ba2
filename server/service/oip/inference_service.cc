// SPDX-License-Identifier: Apache-2.0
#include "server/service/oip/inference_service.h"

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
#include "server/service/oip/infer_answer.h"
#include "server/service/oip/infer_request.h"
#include "server/service/oip/model.h"
#include "server/service/output_pump.h"

namespace attnbias {
namespace {

// The counters of ModelStatistics. Safe for any number of threads.
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

  // Counts one request.
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
  // One per model.
  std::vector<inference::ModelStatistics> models_ ABSL_GUARDED_BY(mutex_);
};

// A request in progress.
struct InferWork {
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  // Null until the request names one.
  const Model* model = nullptr;
  InferRequest request;
  PlanPtr plan;
  std::vector<Part> outputs;
  Pieces pieces;
  PayloadPtr payload;

  // Sets all fields except the payload.
  absl::Status MakePlan(Call& call, inference::ModelInferRequest asked) {
    ATTNBIAS_ASSIGN_OR_RETURN(model,
                              Model::Find("model_", asked.model_name(), asked.model_version()));
    ATTNBIAS_ASSIGN_OR_RETURN(request, DecodeInferRequest(*model, std::move(asked)));
    ATTNBIAS_ASSIGN_OR_RETURN(plan, call.MakePlan(std::move(request.spec), ""));
    ATTNBIAS_ASSIGN_OR_RETURN(outputs, ChooseOutputs(request, *plan));
    pieces = Pieces(outputs);
    return absl::OkStatus();
  }

  void AddTo(InferenceStatistics& statistics, bool success) const {
    if (model == nullptr) return;
    statistics.Add(*model, success, std::chrono::steady_clock::now() - start);
  }
};

// A ModelInfer: planned -> computed (unless cached) -> read piece by piece -> answered.
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
    return CheckUnarySize(work_.outputs);
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
    response_ =
        FrameInferResponse(*work_.model, work_.request, *work_.plan, work_.outputs, chunks_);
    int64_t bytes = 0;
    for (const Part& part : work_.outputs) bytes += part.size_bytes;
    call_.ReserveSendTime(bytes);
    call_.AnswerSent(bytes);
    answered_ = true;
    End(absl::OkStatus());
  }

  InferenceStatistics& statistics_;
  grpc::ByteBuffer& response_;
  InferWork work_;
  // Chunks of the payload.
  std::vector<Chunk> chunks_;
  bool answered_ = false;
};

// A ModelStreamInfer: answers each request by pieces of its outputs or by an error.
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
    work_.request.id = ShortenedId(*request);
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
          Message message{
              FrameStreamResponse(*work_.model, work_.request, *work_.plan, piece, last, *chunk),
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

// Methods receive raw messages, as in TensorService, except for the three health methods.
using Oip = inference::GRPCInferenceService;
using OipServerMethods = Oip::WithCallbackMethod_ServerLive<
    Oip::WithCallbackMethod_ServerReady<Oip::WithRawCallbackMethod_ServerMetadata<
        Oip::WithRawCallbackMethod_RepositoryIndex<Oip::Service>>>>;
using OipModelMethods = Oip::WithCallbackMethod_ModelReady<
    Oip::WithRawCallbackMethod_ModelMetadata<Oip::WithRawCallbackMethod_ModelConfig<
        Oip::WithRawCallbackMethod_ModelStatistics<OipServerMethods>>>>;
using OipMethods = Oip::WithRawCallbackMethod_ModelInfer<
    Oip::WithRawCallbackMethod_ModelStreamInfer<OipModelMethods>>;

class InferenceService final : public OipMethods {
 public:
  InferenceService(ServerState* server_state, std::function<bool()> ready)
      : server_state_(server_state), ready_(std::move(ready)) {}

  grpc::ServerUnaryReactor* ServerLive(grpc::CallbackServerContext* context,
                                       const inference::ServerLiveRequest* /*request*/,
                                       inference::ServerLiveResponse* response) override {
    response->set_live(true);
    return Finished(context);
  }

  grpc::ServerUnaryReactor* ServerReady(grpc::CallbackServerContext* context,
                                        const inference::ServerReadyRequest* /*request*/,
                                        inference::ServerReadyResponse* response) override {
    response->set_ready(ready_());
    return Finished(context);
  }

  grpc::ServerUnaryReactor* ModelReady(grpc::CallbackServerContext* context,
                                       const inference::ModelReadyRequest* request,
                                       inference::ModelReadyResponse* response) override {
    response->set_ready(ready_() && Model::Find("", request->name(), request->version()).ok());
    return Finished(context);
  }

  grpc::ServerUnaryReactor* ServerMetadata(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* response) override {
    using Answer = inference::ServerMetadataResponse;
    return UnaryHandler::Start<inference::ServerMetadataRequest, Answer>(
        server_state_, Method::kServerMetadata, context, request, response,
        [](Call&, const auto&, Answer* answer) {
          answer->set_name(kPlatform);
          answer->set_version(ATTNBIAS_VERSION);
          for (const char* const name : {"model_configuration", "parameters", "statistics"}) {
            answer->add_extensions(name);
          }
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* ModelMetadata(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override {
    using Answer = inference::ModelMetadataResponse;
    return UnaryHandler::Start<inference::ModelMetadataRequest, Answer>(
        server_state_, Method::kModelMetadata, context, request, response,
        [](Call&, const auto& asked, Answer* answer) {
          ATTNBIAS_ASSIGN_OR_RETURN(const Model* const model,
                                    Model::Find("", asked.name(), asked.version()));
          *answer = model->Metadata();
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* ModelConfig(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override {
    using Answer = inference::ModelConfigResponse;
    return UnaryHandler::Start<inference::ModelConfigRequest, Answer>(
        server_state_, Method::kModelConfig, context, request, response,
        [](Call&, const auto& asked, Answer* answer) {
          ATTNBIAS_ASSIGN_OR_RETURN(const Model* const model,
                                    Model::Find("", asked.name(), asked.version()));
          *answer->mutable_config() = model->Config();
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* ModelStatistics(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) override {
    using Answer = inference::ModelStatisticsResponse;
    return UnaryHandler::Start<inference::ModelStatisticsRequest, Answer>(
        server_state_, Method::kModelStatistics, context, request, response,
        [this](Call&, const auto& asked, Answer* answer) {
          if (asked.name().empty()) {
            for (const Model& model : Model::All()) {
              *answer->add_model_stats() = statistics_.Of(model);
            }
            return absl::OkStatus();
          }
          ATTNBIAS_ASSIGN_OR_RETURN(const Model* const model,
                                    Model::Find("", asked.name(), asked.version()));
          *answer->add_model_stats() = statistics_.Of(*model);
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* RepositoryIndex(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) override {
    using Answer = inference::RepositoryIndexResponse;
    return UnaryHandler::Start<inference::RepositoryIndexRequest, Answer>(
        server_state_, Method::kRepositoryIndex, context, request, response,
        [](Call&, const auto&, Answer* answer) {
          for (const Model& model : Model::All()) {
            Answer::ModelIndex& index = *answer->add_models();
            index.set_name(model.name());
            index.set_version(kModelVersion);
            index.set_state("READY");
          }
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* ModelInfer(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override {
    return new InferReactor(server_state_, &statistics_, context, request, response);
  }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ModelStreamInfer(
      grpc::CallbackServerContext* context) override {
    return new StreamInferReactor(server_state_, &statistics_, context);
  }

 private:
  static grpc::ServerUnaryReactor* Finished(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  ServerState* const server_state_;
  const std::function<bool()> ready_;
  InferenceStatistics statistics_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeInferenceService(ServerState* server_state,
                                                    std::function<bool()> ready) {
  return std::make_unique<InferenceService>(server_state, std::move(ready));
}

}  // namespace attnbias
