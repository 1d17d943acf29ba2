// SPDX-License-Identifier: Apache-2.0
#include "server/oip/infer_answer.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attnbias/v1/tensor.pb.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "grpcpp/support/slice.h"
#include "server/frame.h"
#include "server/limits.h"
#include "server/oip/data_types.h"

namespace attnbias {
namespace {

using Response = inference::ModelInferResponse;

int64_t BytesOfIndex(const Part& part) {
  return part.size_bytes / part.shape.front();
}

Response Begin(const Model& model, const InferRequest& request,
               const Plan& plan) {
  Response response;
  response.set_model_name(model.name());
  response.set_model_version(kModelVersion);
  response.set_id(request.id);
  (*response.mutable_parameters())["fingerprint"].set_string_param(
      plan.fingerprint());
  return response;
}

Response::InferOutputTensor& AddOutput(const Part& part, const Plan& plan,
                                       Response* response) {
  Response::InferOutputTensor& output = *response->add_outputs();
  output.set_name(std::string(part.name));
  output.set_datatype(std::string(OipNameOf(plan.data_type())));
  output.mutable_shape()->Assign(part.shape.begin(), part.shape.end());
  return output;
}

// `first`, and then all slices of `rest`.
grpc::ByteBuffer Joined(const std::string& first,
                        const std::vector<grpc::ByteBuffer>& rest) {
  std::vector<grpc::Slice> slices = {grpc::Slice(first)};
  for (const grpc::ByteBuffer& buffer : rest) {
    std::vector<grpc::Slice> more;
    (void)buffer.Dump(&more);
    slices.insert(slices.end(), more.begin(), more.end());
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

grpc::ByteBuffer WithContents(const Response& response,
                              absl::Span<const Chunk> chunks) {
  std::vector<grpc::ByteBuffer> contents;
  contents.reserve(chunks.size());
  for (const Chunk& chunk : chunks) {
    contents.push_back(
        AppendData("", Response::kRawOutputContentsFieldNumber, chunk));
  }
  return Joined(response.SerializeAsString(), contents);
}

}  // namespace

Range Piece::bytes() const {
  const int64_t each = BytesOfIndex(part);
  return {part.offset + indices.begin * each, part.offset + indices.end * each};
}

absl::StatusOr<std::vector<Part>> ChooseOutputs(const InferRequest& request,
                                                const Plan& plan) {
  if (request.outputs.empty()) return plan.parts();
  std::vector<Part> outputs;
  for (const std::string& name : request.outputs) {
    const auto part = absl::c_find_if(
        plan.parts(), [&name](const Part& part) { return part.name == name; });
    if (part == plan.parts().end()) {
      const auto write_name = [](std::string* text, const Part& part) {
        text->append(part.name);
      };
      return Invalid("outputs: got '", Shortened(name), "', want ",
                     absl::StrJoin(plan.parts(), " or ", write_name),
                     " in this form");
    }
    outputs.push_back(*part);
  }
  return outputs;
}

absl::Status CheckUnarySize(const std::vector<Part>& outputs) {
  int64_t bytes = 0;
  for (const Part& part : outputs) bytes += part.size_bytes;
  if (bytes <= kMaxInferBytes) return absl::OkStatus();
  return Invalid("outputs: got ", bytes, " bytes, want at most ",
                 kMaxInferBytes,
                 " in one message; ask with ModelStreamInfer, or for less");
}

absl::StatusOr<std::vector<Piece>> CutOutputs(
    const std::vector<Part>& outputs) {
  std::vector<Piece> pieces;
  for (const Part& part : outputs) {
    const int64_t each = BytesOfIndex(part);
    if (each > kMaxInferBytes) {
      return Invalid("outputs: got ", each, " bytes at one index of ",
                     std::string(part.name), "'s first axis, want at most ",
                     kMaxInferBytes, "; ask for less");
    }
    const int64_t most = std::max<int64_t>(kDefaultChunkBytes / each, 1);
    const int64_t length = part.shape.front();
    for (int64_t begin = 0; begin < length; begin += most) {
      pieces.push_back({part, {begin, std::min(begin + most, length)}});
    }
  }
  return pieces;
}

grpc::ByteBuffer FrameInferResponse(const Model& model,
                                    const InferRequest& request,
                                    const Plan& plan,
                                    const std::vector<Part>& outputs,
                                    absl::Span<const Chunk> chunks) {
  Response response = Begin(model, request, plan);
  for (const Part& part : outputs) AddOutput(part, plan, &response);
  return WithContents(response, chunks);
}

grpc::ByteBuffer FrameStreamResponse(const Model& model,
                                     const InferRequest& request,
                                     const Plan& plan, const Piece& piece,
                                     bool last, const Chunk& chunk) {
  Response response = Begin(model, request, plan);
  (*response.mutable_parameters())["triton_final_response"].set_bool_param(
      last);
  Response::InferOutputTensor& output = AddOutput(piece.part, plan, &response);
  output.set_shape(0, piece.indices.size());
  auto& parameters = *output.mutable_parameters();
  parameters["begin"].set_int64_param(piece.indices.begin);
  parameters["length"].set_int64_param(piece.part.shape.front());
  const grpc::ByteBuffer inner = WithContents(response, {&chunk, 1});
  return Joined(
      TagAndLength(
          inference::ModelStreamInferResponse::kInferResponseFieldNumber,
          inner.Length()),
      {inner});
}

grpc::ByteBuffer FrameStreamError(const std::string& id,
                                  const absl::Status& status) {
  inference::ModelStreamInferResponse response;
  response.set_error_message(absl::StrCat(
      absl::StatusCodeToString(status.code()), ": ", status.message()));
  response.mutable_infer_response()->set_id(id);
  return Serialized(response);
}

}  // namespace attnbias
