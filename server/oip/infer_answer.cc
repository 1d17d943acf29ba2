// SPDX-License-Identifier: Apache-2.0
#include "server/oip/infer_answer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attnbias/v1/tensor.pb.h"
#include "core/base/invalid.h"
#include "grpcpp/support/slice.h"
#include "server/frame.h"
#include "server/grpc_status.h"
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

// One of the response's raw_output_contents.
grpc::ByteBuffer Contents(int64_t size, const std::vector<Chunk>& chunks) {
  std::vector<grpc::ByteBuffer> slices;
  slices.reserve(chunks.size());
  for (const Chunk& chunk : chunks) slices.push_back(BytesOf(chunk));
  return Joined(TagAndLength(Response::kRawOutputContentsFieldNumber, size),
                slices);
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
  absl::flat_hash_set<std::string_view> names;
  for (const std::string& name : request.outputs) {
    if (!names.insert(name).second) {
      return Invalid("outputs: got '", Shortened(name),
                     "' twice, want it once");
    }
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

absl::Status Pieces::Check() const {
  for (const Part& part : outputs_) {
    const int64_t each = BytesOfIndex(part);
    if (each <= kMaxInferBytes) continue;
    return Invalid("outputs: got ", each, " bytes at one index of ",
                   std::string(part.name), "'s first axis, want at most ",
                   kMaxInferBytes, "; ask for less");
  }
  return absl::OkStatus();
}

Piece Pieces::Take() {
  const Part& part = outputs_[output_];
  const int64_t most =
      std::max<int64_t>(kDefaultChunkBytes / BytesOfIndex(part), 1);
  const int64_t length = part.shape.front();
  const Range indices = {index_, std::min(index_ + most, length)};
  Piece piece = {part, indices};
  index_ = indices.end;
  if (index_ == length) {
    ++output_;
    index_ = 0;
  }
  return piece;
}

grpc::ByteBuffer FrameInferResponse(
    const Model& model, const InferRequest& request, const Plan& plan,
    const std::vector<Part>& outputs,
    const std::vector<std::vector<Chunk>>& chunks) {
  Response response = Begin(model, request, plan);
  std::vector<grpc::ByteBuffer> contents;
  for (size_t i = 0; i < outputs.size(); ++i) {
    AddOutput(outputs[i], plan, &response);
    contents.push_back(Contents(outputs[i].size_bytes, chunks[i]));
  }
  return Joined(response.SerializeAsString(), contents);
}

grpc::ByteBuffer FrameStreamResponse(const Model& model,
                                     const InferRequest& request,
                                     const Plan& plan, const Piece& piece,
                                     bool last,
                                     const std::vector<Chunk>& chunks) {
  Response response = Begin(model, request, plan);
  (*response.mutable_parameters())["triton_final_response"].set_bool_param(
      last);
  Response::InferOutputTensor& output = AddOutput(piece.part, plan, &response);
  output.set_shape(0, piece.indices.size());
  auto& parameters = *output.mutable_parameters();
  parameters["begin"].set_int64_param(piece.indices.begin);
  parameters["length"].set_int64_param(piece.part.shape.front());
  const grpc::ByteBuffer inner = Joined(
      response.SerializeAsString(), {Contents(piece.bytes().size(), chunks)});
  return Joined(
      TagAndLength(
          inference::ModelStreamInferResponse::kInferResponseFieldNumber,
          inner.Length()),
      {inner});
}

grpc::ByteBuffer FrameStreamError(const std::string& id,
                                  const absl::Status& status) {
  inference::ModelStreamInferResponse response;
  response.set_error_message(
      absl::StrCat(absl::StatusCodeToString(status.code()), ": ",
                   WithShortMessage(status).message()));
  response.mutable_infer_response()->set_id(id);
  return Serialized(response);
}

}  // namespace attnbias
