// SPDX-License-Identifier: Apache-2.0
// Converts payloads to the outputs of a ModelInferResponse without copying them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/engine/payload.h"
#include "core/engine/plan.h"
#include "core/tensor/positions.h"
#include "grpcpp/support/byte_buffer.h"
#include "inference/inference.pb.h"
#include "server/service/oip/infer_request.h"
#include "server/service/oip/model.h"

namespace attnbias {

// Maximum bytes of a message, which the client must read within --write-stall-timeout.
inline constexpr int64_t kMaxInferBytes = int64_t{256} << 20;

// Returns the parts of `plan` that `request` names, in its order.
//
// INVALID_ARGUMENT  a part does not exist, or is named twice
absl::StatusOr<std::vector<Part>> ChooseOutputs(const InferRequest& request, const Plan& plan);

// Returns INVALID_ARGUMENT if the outputs do not fit in one message.
absl::Status CheckUnarySize(const std::vector<Part>& outputs);

// Elements of a part, in row-major order.
struct Piece {
  Part part;
  // In the payload.
  Range bytes;
};

// Splits outputs into pieces of kMaxChunkBytes; the last piece of each output is shorter.
class Pieces {
 public:
  Pieces() = default;
  explicit Pieces(std::vector<Part> outputs) : outputs_(std::move(outputs)) {}

  bool AreAllTaken() const { return output_ == outputs_.size(); }
  Piece Take();

 private:
  std::vector<Part> outputs_;
  // Position of the next piece; the offset is from the output's beginning.
  size_t output_ = 0;
  int64_t offset_ = 0;
};

// Puts all outputs into one message. `chunks` holds the bytes of each output, in order.
grpc::ByteBuffer FrameInferResponse(const Model& model, const InferRequest& request,
                                    const Plan& plan, const std::vector<Part>& outputs,
                                    absl::Span<const Chunk> chunks);

// Makes a ModelStreamInferResponse from one piece; `last` marks the last piece of its request.
grpc::ByteBuffer FrameStreamResponse(const Model& model, const InferRequest& request,
                                     const Plan& plan, const Piece& piece, bool last,
                                     const Chunk& chunk);

// Makes the ModelStreamInferResponse of an error.
grpc::ByteBuffer FrameStreamError(const std::string& id, const absl::Status& status);

}  // namespace attnbias
