// SPDX-License-Identifier: Apache-2.0
// Payloads as the outputs of a ModelInferResponse, without copying them.
#ifndef ATTNBIAS_SERVER_OIP_INFER_ANSWER_H_
#define ATTNBIAS_SERVER_OIP_INFER_ANSWER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/engine/payload.h"
#include "core/engine/plan.h"
#include "core/tensor/range.h"
#include "grpcpp/support/byte_buffer.h"
#include "inference/inference.pb.h"
#include "server/oip/infer_request.h"
#include "server/oip/model.h"

namespace attnbias {

// What one message carries at most. Its client has --progress-timeout to take
// it.
inline constexpr int64_t kMaxInferBytes = int64_t{256} << 20;

// The parts of `plan` that `request` wants, in its order.
//
// INVALID_ARGUMENT  there is no part of that name, or it is named twice
absl::StatusOr<std::vector<Part>> ChooseOutputs(const InferRequest& request,
                                                const Plan& plan);

// INVALID_ARGUMENT  one message cannot carry them
absl::Status CheckUnarySize(const std::vector<Part>& outputs);

// Indices of a part's first axis.
struct Piece {
  Part part;
  Range indices;

  // Where they lie in the payload.
  Range bytes() const;
};

// The pieces in which a stream sends outputs, one after another: of
// kDefaultChunkBytes, or of one index where that has more.
class Pieces {
 public:
  Pieces() = default;
  explicit Pieces(std::vector<Part> outputs) : outputs_(std::move(outputs)) {}

  // INVALID_ARGUMENT  one message cannot carry what stands at one index
  absl::Status Check() const;

  bool AreAllTaken() const { return output_ == outputs_.size(); }
  Piece Take();

 private:
  std::vector<Part> outputs_;
  // Of the next piece.
  size_t output_ = 0;
  int64_t index_ = 0;
};

// All outputs in one message; `chunks` are the bytes of each.
grpc::ByteBuffer FrameInferResponse(
    const Model& model, const InferRequest& request, const Plan& plan,
    const std::vector<Part>& outputs,
    const std::vector<std::vector<Chunk>>& chunks);

// A ModelStreamInferResponse of one piece; `last` of its request.
grpc::ByteBuffer FrameStreamResponse(const Model& model,
                                     const InferRequest& request,
                                     const Plan& plan, const Piece& piece,
                                     bool last,
                                     const std::vector<Chunk>& chunks);

// One that says why the request with this id failed.
grpc::ByteBuffer FrameStreamError(const std::string& id,
                                  const absl::Status& status);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_OIP_INFER_ANSWER_H_
