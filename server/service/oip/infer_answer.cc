// SPDX-License-Identifier: Apache-2.0
#include "server/service/oip/infer_answer.h"

#include <algorithm>
#include <string_view>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "attnbias/v1/tensor.pb.h"
#include "core/base/errors.h"
#include "core/tensor/data_type.h"
#include "grpcpp/support/slice.h"
#include "server/service/grpc_status.h"
#include "server/service/messages.h"

namespace attnbias {
namespace {

using Response = inference::ModelInferResponse;

Response Begin(const Model& model, const InferRequest& request, const Plan& plan) {
  Response response;
  response.set_model_name(model.name());
  response.set_model_version(kModelVersion);
  response.set_id(request.id);
  auto& parameters = *response.mutable_parameters();
  parameters["fingerprint"].set_string_param(plan.fingerprint());
  if (plan.is_by_axis()) {
    parameters["column_axes"].set_string_param(
        absl::StrCat("[", absl::StrJoin(plan.ColumnAxes(), ", "), "]"));
  }
  return response;
}

Response::InferOutputTensor& AddOutput(const Part& part, const Plan& plan, Response* response) {
  Response::InferOutputTensor& output = *response->add_outputs();
  output.set_name(std::string(part.name));
  output.set_datatype(std::string(OipNameOf(plan.data_type())));
  return output;
}

}  // namespace

absl::StatusOr<std::vector<Part>> ChooseOutputs(const InferRequest& request, const Plan& plan) {
  if (request.outputs.empty()) return plan.parts();
  std::vector<Part> outputs;
  absl::flat_hash_set<std::string_view> names;
  for (const std::string& name : request.outputs) {
    if (!names.insert(name).second) {
      return Invalid("outputs: got '", Shortened(name), "' twice, want it once");
    }
    const auto part =
        absl::c_find_if(plan.parts(), [&name](const Part& part) { return part.name == name; });
    if (part == plan.parts().end()) {
      const auto write_name = [](std::string* text, const Part& part) { text->append(part.name); };
      return Invalid("outputs: got '", Shortened(name), "', want ",
                     absl::StrJoin(plan.parts(), " or ", write_name),
                     ": this request has no other outputs");
    }
    outputs.push_back(*part);
  }
  return outputs;
}

absl::Status CheckUnarySize(const std::vector<Part>& outputs) {
  int64_t bytes = 0;
  for (const Part& part : outputs) bytes += part.size_bytes;
  if (bytes <= kMaxInferBytes) return absl::OkStatus();
  return Invalid("outputs: got ", bytes, " bytes, want at most ", kMaxInferBytes,
                 " in one message; use ModelStreamInfer, or request less");
}

Piece Pieces::Take() {
  const Part& part = outputs_[output_];
  const int64_t begin = part.offset + offset_;
  offset_ = std::min(offset_ + kMaxChunkBytes, part.size_bytes);
  Piece piece = {part, {begin, part.offset + offset_}};
  if (offset_ == part.size_bytes) {
    ++output_;
    offset_ = 0;
  }
  return piece;
}

grpc::ByteBuffer FrameInferResponse(const Model& model, const InferRequest& request,
                                    const Plan& plan, const std::vector<Part>& outputs,
                                    absl::Span<const Chunk> chunks) {
  Response response = Begin(model, request, plan);
  std::vector<grpc::Slice> contents(1);
  for (const Part& part : outputs) {
    AddOutput(part, plan, &response).mutable_shape()->Assign(part.shape.begin(), part.shape.end());
    contents.emplace_back(TagAndLength(Response::kRawOutputContentsFieldNumber, part.size_bytes));
    for (int64_t left = part.size_bytes; left > 0; chunks.remove_prefix(1)) {
      left -= AppendBytes(chunks.front(), &contents);
    }
  }
  contents.front() = grpc::Slice(response.SerializeAsString());
  return grpc::ByteBuffer(contents.data(), contents.size());
}

grpc::ByteBuffer FrameStreamResponse(const Model& model, const InferRequest& request,
                                     const Plan& plan, const Piece& piece, bool last,
                                     const Chunk& chunk) {
  Response response = Begin(model, request, plan);
  (*response.mutable_parameters())["triton_final_response"].set_bool_param(last);
  const auto& [part, bytes] = piece;
  const int64_t element = SizeOf(plan.data_type());
  Response::InferOutputTensor& output = AddOutput(part, plan, &response);
  output.add_shape(bytes.size() / element);
  auto& parameters = *output.mutable_parameters();
  parameters["begin"].set_int64_param((bytes.begin - part.offset) / element);
  parameters["shape"].set_string_param(absl::StrCat("[", absl::StrJoin(part.shape, ", "), "]"));
  const int contents = Response::kRawOutputContentsFieldNumber;
  const std::string fields = response.SerializeAsString();
  const size_t size = fields.size() + TagAndLength(contents, bytes.size()).size() +
                      static_cast<size_t>(bytes.size());
  const std::string begin =
      TagAndLength(inference::ModelStreamInferResponse::kInferResponseFieldNumber, size);
  return AppendData(begin + fields, contents, chunk);
}

grpc::ByteBuffer FrameStreamError(const std::string& id, const absl::Status& status) {
  inference::ModelStreamInferResponse response;
  response.set_error_message(absl::StrCat(absl::StatusCodeToString(status.code()), ": ",
                                          WithShortMessage(status).message()));
  response.mutable_infer_response()->set_id(id);
  return Serialized(response);
}

}  // namespace attnbias
