// SPDX-License-Identifier: Apache-2.0
// inference.GRPCInferenceService: the Open Inference Protocol, in which every
// encoding is a model.
#ifndef ATTNBIAS_SERVER_OIP_INFERENCE_SERVICE_H_
#define ATTNBIAS_SERVER_OIP_INFERENCE_SERVICE_H_

#include <functional>

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "inference/inference.grpc.pb.h"
#include "server/call.h"
#include "server/oip/statistics.h"

namespace attnbias {

// Methods see raw messages, as those of TensorService, but for questions of
// health.
using Oip = inference::GRPCInferenceService;
using ServerMethods =
    Oip::WithCallbackMethod_ServerLive<Oip::WithCallbackMethod_ServerReady<
        Oip::WithRawCallbackMethod_ServerMetadata<
            Oip::WithRawCallbackMethod_RepositoryIndex<Oip::Service>>>>;
using ModelMethods =
    Oip::WithCallbackMethod_ModelReady<Oip::WithRawCallbackMethod_ModelMetadata<
        Oip::WithRawCallbackMethod_ModelConfig<
            Oip::WithRawCallbackMethod_ModelStatistics<ServerMethods>>>>;
using InferenceServiceBase = Oip::WithRawCallbackMethod_ModelInfer<
    Oip::WithRawCallbackMethod_ModelStreamInfer<ModelMethods>>;

class InferenceService final : public InferenceServiceBase {
 public:
  // `environment` outlives the service; `ready` says whether readiness is
  // SERVING.
  InferenceService(CallEnvironment* environment, std::function<bool()> ready);

  grpc::ServerUnaryReactor* ServerLive(
      grpc::CallbackServerContext* context,
      const inference::ServerLiveRequest* request,
      inference::ServerLiveResponse* response) override;
  grpc::ServerUnaryReactor* ServerReady(
      grpc::CallbackServerContext* context,
      const inference::ServerReadyRequest* request,
      inference::ServerReadyResponse* response) override;
  grpc::ServerUnaryReactor* ModelReady(
      grpc::CallbackServerContext* context,
      const inference::ModelReadyRequest* request,
      inference::ModelReadyResponse* response) override;
  grpc::ServerUnaryReactor* ServerMetadata(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ModelMetadata(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ModelConfig(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ModelStatistics(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
      grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* RepositoryIndex(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
      grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ModelInfer(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ModelStreamInfer(
      grpc::CallbackServerContext* context) override;

 private:
  CallEnvironment& environment_;
  const std::function<bool()> ready_;
  InferenceStatistics statistics_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_OIP_INFERENCE_SERVICE_H_
