// SPDX-License-Identifier: Apache-2.0
// Payloads as the outputs of a ModelInferResponse, without copying them.
#ifndef ATTNBIAS_SERVER_OIP_INFER_ANSWER_H_
#define ATTNBIAS_SERVER_OIP_INFER_ANSWER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
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
// INVALID_ARGUMENT  there is no part of that name
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

// The pieces, of kDefaultChunkBytes or one index, in which a stream sends
// `outputs`.
//
// INVALID_ARGUMENT  one message cannot carry what stands at one index
absl::StatusOr<std::vector<Piece>> CutOutputs(const std::vector<Part>& outputs);

// All outputs in one message; `chunks` are their bytes.
grpc::ByteBuffer FrameInferResponse(const Model& model,
                                    const InferRequest& request,
                                    const Plan& plan,
                                    const std::vector<Part>& outputs,
                                    absl::Span<const Chunk> chunks);

// A ModelStreamInferResponse of one piece; `last` of its request.
grpc::ByteBuffer FrameStreamResponse(const Model& model,
                                     const InferRequest& request,
                                     const Plan& plan, const Piece& piece,
                                     bool last, const Chunk& chunk);

// One that says why the request with this id failed.
grpc::ByteBuffer FrameStreamError(const std::string& id,
                                  const absl::Status& status);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_OIP_INFER_ANSWER_H_
