// SPDX-License-Identifier: Apache-2.0
// The life of one ModelStreamInfer.
#ifndef ATTNBIAS_SERVER_OIP_STREAM_INFER_REACTOR_H_
#define ATTNBIAS_SERVER_OIP_STREAM_INFER_REACTOR_H_

#include <chrono>

#include "absl/status/status.h"
#include "core/engine/engine.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/oip/infer_answer.h"
#include "server/oip/infer_request.h"
#include "server/oip/model.h"
#include "server/oip/statistics.h"
#include "server/request_pump.h"

namespace attnbias {

// One request after another, each answered by pieces of its outputs or by an
// error.
class StreamInferReactor final : public RequestPump {
 public:
  StreamInferReactor(CallEnvironment* environment,
                     InferenceStatistics* statistics,
                     grpc::CallbackServerContext* context);

 private:
  // A request under way.
  struct Work {
    const Model* model = nullptr;
    std::chrono::steady_clock::time_point start;
    InferRequest request;
    PlanPtr plan;
    PayloadPtr payload;
    Pieces pieces;
  };

  bool IsUnfinished() const override { return !work_.pieces.AreAllTaken(); }
  absl::Status NoRequest() const override { return absl::OkStatus(); }
  void Make() override;
  absl::Status MakePlan(inference::ModelInferRequest request);
  void MakePiece();
  void Fail(const absl::Status& status);
  void EndWork(bool success);

  InferenceStatistics& statistics_;
  // Used by one Make at a time.
  Work work_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_OIP_STREAM_INFER_REACTOR_H_
