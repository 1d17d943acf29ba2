// SPDX-License-Identifier: Apache-2.0
// inference.GRPCInferenceService: the Open Inference Protocol, in which every encoding is a model.
//
// Translates a ModelInferRequest into a TensorSpec, and payloads into the outputs of a
// ModelInferResponse, without copying them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attnbias/v1/service.pb.h"
#include "core/engine/payload.h"
#include "core/engine/plan.h"
#include "core/tensor/positions.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/support/byte_buffer.h"
#include "inference/inference.pb.h"
#include "server/service/call.h"
#include "server/service/oip/model.h"

namespace attnbias {

// `server_state` outlives the service; `ready` returns whether readiness is SERVING.
std::unique_ptr<grpc::Service> MakeInferenceService(ServerState* server_state,
                                                    std::function<bool()> ready);

struct InferRequest {
  // Null until Decode has found it.
  const Model* model = nullptr;
  // Shortened, since responses repeat it.
  std::string id;
  v1::TensorSpec spec;
  // Names of the requested parts; empty for all.
  std::vector<std::string> outputs;

  // Sets the fields; on error, only those before the invalid one. Errors begin with the path of a
  // TensorSpec field, or with a field of `message`.
  //
  // NOT_FOUND         the model does not exist
  // INVALID_ARGUMENT  a parameter, input or output that the model does not have, or a bad value
  // UNIMPLEMENTED     a feature that only other servers of this protocol have
  absl::Status Decode(inference::ModelInferRequest message);
};

// Returns the parts of `plan` that `request` names, in the request's order.
//
// INVALID_ARGUMENT  a part does not exist, or is named twice
absl::StatusOr<std::vector<Part>> ChooseOutputs(const InferRequest& request, const Plan& plan);

// Consecutive elements of a part, in row-major order.
struct Piece {
  Part part;
  // Range of the elements in the payload.
  Range bytes;
};

// Splits outputs into pieces of kMaxChunkBytes; the last piece of each output may be shorter.
class Pieces {
 public:
  Pieces() = default;
  explicit Pieces(std::vector<Part> outputs) : outputs_(std::move(outputs)) {}

  bool AreAllTaken() const { return output_ == outputs_.size(); }
  Piece Take();

 private:
  std::vector<Part> outputs_;
  // Position of the next piece: the index of an output, and an offset from the output's beginning.
  size_t output_ = 0;
  int64_t offset_ = 0;
};

// Puts all outputs into one message. `chunks` are the bytes of the outputs, in order; each chunk
// belongs to one output.
grpc::ByteBuffer FrameInferResponse(const InferRequest& request, const Plan& plan,
                                    const std::vector<Part>& outputs,
                                    absl::Span<const Chunk> chunks);

// Makes a ModelStreamInferResponse from one piece; `last` marks the last piece of a request.
grpc::ByteBuffer FrameStreamResponse(const InferRequest& request, const Plan& plan,
                                     const Piece& piece, bool last, const Chunk& chunk);

// Makes the ModelStreamInferResponse for an error.
grpc::ByteBuffer FrameStreamError(const std::string& id, const absl::Status& status);

}  // namespace attnbias
