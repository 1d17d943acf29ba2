// SPDX-License-Identifier: Apache-2.0
// attnbias.v1.AttentionBiasService: each RPC to what carries it out.
#ifndef ATTNBIAS_SERVER_TENSOR_SERVICE_H_
#define ATTNBIAS_SERVER_TENSOR_SERVICE_H_

#include <functional>

#include "attnbias/v1/service.grpc.pb.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/call.h"

namespace attnbias {

// All methods see raw messages: payloads are not copied, and what is no message
// is answered, logged and counted like any bad request.
using TensorServiceBase =
    v1::AttentionBiasService::WithRawCallbackMethod_DescribeTensor<
        v1::AttentionBiasService::WithRawCallbackMethod_GetTensor<
            v1::AttentionBiasService::WithRawCallbackMethod_StreamTensor<
                v1::AttentionBiasService::WithRawCallbackMethod_ListTables<
                    v1::AttentionBiasService::
                        WithRawCallbackMethod_ComputeLogits<
                            v1::AttentionBiasService::
                                WithRawCallbackMethod_GetServerInfo<
                                    v1::AttentionBiasService::Service>>>>>>;

class TensorService final : public TensorServiceBase {
 public:
  // `environment` outlives the service; `info` gives what GetServerInfo
  // answers.
  TensorService(CallEnvironment* environment,
                std::function<v1::GetServerInfoResponse()> info);

  grpc::ServerUnaryReactor* DescribeTensor(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetTensor(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* StreamTensor(
      grpc::CallbackServerContext* context,
      const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* ListTables(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ComputeLogits(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;

 private:
  CallEnvironment& environment_;
  const std::function<v1::GetServerInfoResponse()> info_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_TENSOR_SERVICE_H_
