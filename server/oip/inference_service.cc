// SPDX-License-Identifier: Apache-2.0
#include "server/oip/inference_service.h"

#include <utility>

#include "core/base/status_macros.h"
#include "server/call_reactor.h"
#include "server/oip/infer_reactor.h"
#include "server/oip/model.h"
#include "server/oip/stream_infer_reactor.h"

namespace attnbias {
namespace {

constexpr const char* kExtensions[] = {"model_configuration", "parameters",
                                       "statistics"};

grpc::ServerUnaryReactor* Finished(grpc::CallbackServerContext* context) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace

InferenceService::InferenceService(CallEnvironment* environment,
                                   std::function<bool()> ready)
    : environment_(*environment), ready_(std::move(ready)) {}

grpc::ServerUnaryReactor* InferenceService::ServerLive(
    grpc::CallbackServerContext* context,
    const inference::ServerLiveRequest* /*request*/,
    inference::ServerLiveResponse* response) {
  response->set_live(true);
  return Finished(context);
}

grpc::ServerUnaryReactor* InferenceService::ServerReady(
    grpc::CallbackServerContext* context,
    const inference::ServerReadyRequest* /*request*/,
    inference::ServerReadyResponse* response) {
  response->set_ready(ready_());
  return Finished(context);
}

grpc::ServerUnaryReactor* InferenceService::ModelReady(
    grpc::CallbackServerContext* context,
    const inference::ModelReadyRequest* request,
    inference::ModelReadyResponse* response) {
  response->set_ready(
      ready_() && Model::Find("", request->name(), request->version()).ok());
  return Finished(context);
}

grpc::ServerUnaryReactor* InferenceService::ServerMetadata(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  using Answer = inference::ServerMetadataResponse;
  return OneStep::Start<inference::ServerMetadataRequest, Answer>(
      &environment_, Method::kServerMetadata, context, request, response,
      [](Call&, const auto&, Answer* answer) {
        answer->set_name(kPlatform);
        answer->set_version(ATTNBIAS_VERSION);
        for (const char* const name : kExtensions) answer->add_extensions(name);
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* InferenceService::ModelMetadata(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  using Answer = inference::ModelMetadataResponse;
  return OneStep::Start<inference::ModelMetadataRequest, Answer>(
      &environment_, Method::kModelMetadata, context, request, response,
      [](Call&, const auto& asked, Answer* answer) {
        ATTNBIAS_ASSIGN_OR_RETURN(
            const Model* const model,
            Model::Find("", asked.name(), asked.version()));
        *answer = model->Metadata();
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* InferenceService::ModelConfig(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  using Answer = inference::ModelConfigResponse;
  return OneStep::Start<inference::ModelConfigRequest, Answer>(
      &environment_, Method::kModelConfig, context, request, response,
      [](Call&, const auto& asked, Answer* answer) {
        ATTNBIAS_ASSIGN_OR_RETURN(
            const Model* const model,
            Model::Find("", asked.name(), asked.version()));
        *answer->mutable_config() = model->Config();
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* InferenceService::ModelStatistics(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  using Answer = inference::ModelStatisticsResponse;
  return OneStep::Start<inference::ModelStatisticsRequest, Answer>(
      &environment_, Method::kModelStatistics, context, request, response,
      [this](Call&, const auto& asked, Answer* answer) {
        if (asked.name().empty()) {
          for (const Model& model : Model::All()) {
            *answer->add_model_stats() = statistics_.Of(model);
          }
          return absl::OkStatus();
        }
        ATTNBIAS_ASSIGN_OR_RETURN(
            const Model* const model,
            Model::Find("", asked.name(), asked.version()));
        *answer->add_model_stats() = statistics_.Of(*model);
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* InferenceService::RepositoryIndex(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  using Answer = inference::RepositoryIndexResponse;
  return OneStep::Start<inference::RepositoryIndexRequest, Answer>(
      &environment_, Method::kRepositoryIndex, context, request, response,
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

grpc::ServerUnaryReactor* InferenceService::ModelInfer(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return new InferReactor(&environment_, &statistics_, context, request,
                          response);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*
InferenceService::ModelStreamInfer(grpc::CallbackServerContext* context) {
  return new StreamInferReactor(&environment_, &statistics_, context);
}

}  // namespace attnbias
