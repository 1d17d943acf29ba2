// SPDX-License-Identifier: Apache-2.0
// The life of one ModelInfer.
#ifndef ATTNBIAS_SERVER_OIP_INFER_REACTOR_H_
#define ATTNBIAS_SERVER_OIP_INFER_REACTOR_H_

#include <chrono>
#include <vector>

#include "absl/status/status.h"
#include "core/engine/engine.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/call_reactor.h"
#include "server/oip/infer_answer.h"
#include "server/oip/infer_request.h"
#include "server/oip/model.h"
#include "server/oip/statistics.h"

namespace attnbias {

// planning -> computing (unless kept) -> reading one piece after another ->
// answered.
class InferReactor final : public CallReactor<grpc::ServerUnaryReactor> {
 public:
  InferReactor(CallEnvironment* environment, InferenceStatistics* statistics,
               grpc::CallbackServerContext* context,
               const grpc::ByteBuffer* request, grpc::ByteBuffer* response);

  ~InferReactor() override;

 private:
  absl::Status MakePlan();
  void ReadNext();
  void Answer();

  InferenceStatistics& statistics_;
  const std::chrono::steady_clock::time_point start_;
  const grpc::ByteBuffer& request_bytes_;
  grpc::ByteBuffer& response_;
  // Null until the request names one.
  const Model* model_ = nullptr;
  InferRequest request_;
  PlanPtr plan_;
  std::vector<Part> outputs_;
  PayloadPtr payload_;
  Pieces pieces_;
  // Of the pieces that are read.
  std::vector<Chunk> chunks_;
  bool answered_ = false;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_OIP_INFER_REACTOR_H_
