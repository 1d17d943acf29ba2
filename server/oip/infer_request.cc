// SPDX-License-Identifier: Apache-2.0
#include "server/oip/infer_request.h"

#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "server/codec/known.h"
#include "server/oip/spec_field.h"

namespace attnbias {
namespace {

using InputTensor = inference::ModelInferRequest::InferInputTensor;

// What Triton's clients ask of streams. The last answer of each request says
// that it is the last, so that no empty one is needed.
constexpr char kEmptyFinalResponse[] = "triton_enable_empty_final_response";

// Parameters that Triton's clients send for its schedulers.
constexpr std::string_view kScheduling[] = {
    "priority", "sequence_end", "sequence_id", "sequence_start", "timeout"};

absl::Status SetParameters(const Model& model,
                           const inference::ModelInferRequest& request,
                           v1::TensorSpec* spec) {
  // In order, so that what is set twice is told alike each time.
  const std::map<std::string, inference::InferParameter> parameters(
      request.parameters().begin(), request.parameters().end());
  for (const auto& [path, value] : parameters) {
    if (path == kEmptyFinalResponse) continue;
    if (absl::c_linear_search(kScheduling, path)) {
      return Invalid(path,
                     ": got a setting of Triton's schedulers, want none: "
                     "this server has no scheduler");
    }
    ATTNBIAS_ASSIGN_OR_RETURN(const SpecField field,
                              SpecField::Find(model, path, spec));
    ATTNBIAS_RETURN_IF_ERROR(field.Set(value));
  }
  return absl::OkStatus();
}

// Of a tensor: how HTTP would carry it, which KServe's client says here too.
constexpr std::string_view kIdleParameters[] = {"binary_data",
                                                "binary_data_size"};

// Refuses tensors in memory that both share, classification: what other servers
// have.
template <typename Parameters>
absl::Status CheckParameters(const std::string& tensor,
                             const Parameters& parameters) {
  for (const auto& [name, value] : parameters) {
    if (absl::c_linear_search(kIdleParameters, name)) continue;
    return absl::UnimplementedError(
        absl::StrCat(Shortened(tensor), ".parameters: got '", Shortened(name),
                     "', which this server does not know"));
  }
  return absl::OkStatus();
}

int64_t ElementBytes(const std::string& datatype) {
  if (datatype == kOipPositions) return sizeof(int64_t);
  const auto type = absl::c_find(kOipDataTypes, datatype);
  if (type == kOipDataTypes.end()) return 0;
  return SizeOf(static_cast<DataType>(type - kOipDataTypes.begin() + 1));
}

template <typename Numbers>
std::string BytesIn(const Numbers& numbers) {
  // Little-endian, as this machine.
  return {reinterpret_cast<const char*>(numbers.data()),
          numbers.size() * sizeof(numbers[0])};
}

// The list that belongs to the datatype, which is the only one.
absl::StatusOr<std::string> ContentsOf(const InputTensor& input) {
  const inference::InferTensorContents& contents = input.contents();
  const std::string& type = input.datatype();
  const bool has_others =
      (type != kOipPositions && !contents.int64_contents().empty()) ||
      (type != "FP32" && !contents.fp32_contents().empty()) ||
      (type != "FP64" && !contents.fp64_contents().empty());
  if (has_others) {
    return Invalid(input.name(), ".contents: got numbers of another type than ",
                   Shortened(type), ", want its own, or raw_input_contents");
  }
  if (type == "FP32") return BytesIn(contents.fp32_contents());
  if (type == "FP64") return BytesIn(contents.fp64_contents());
  return BytesIn(contents.int64_contents());
}

absl::Status CheckSize(const InputTensor& input, int64_t got) {
  const int64_t element = ElementBytes(input.datatype());
  if (element == 0) {
    return Invalid(input.name(), ".datatype: got '",
                   Shortened(input.datatype()),
                   "', want FP64, FP32, FP16, BF16 or INT64");
  }
  int64_t want = element;
  for (const int64_t length : input.shape()) {
    if (length < 1 || __builtin_mul_overflow(want, length, &want)) {
      return Invalid(input.name(), ".shape: got an axis of ", length,
                     ", want the lengths of a tensor");
    }
  }
  if (got == want) return absl::OkStatus();
  return Invalid(input.name(), ": got ", got, " bytes, want ", want,
                 " for its shape and datatype");
}

absl::Status SetInputs(const Model& model,
                       inference::ModelInferRequest& request,
                       v1::TensorSpec* spec) {
  const int raw = request.raw_input_contents_size();
  if (raw != 0 && raw != request.inputs_size()) {
    return Invalid("raw_input_contents: got ", raw, ", want ",
                   request.inputs_size(), ", one for each input, or none");
  }
  for (int i = 0; i < request.inputs_size(); ++i) {
    const InputTensor& input = request.inputs(i);
    ATTNBIAS_ASSIGN_OR_RETURN(const SpecField field,
                              SpecField::Find(model, input.name(), spec));
    ATTNBIAS_RETURN_IF_ERROR(CheckParameters(input.name(), input.parameters()));
    if (raw != 0 && input.has_contents()) {
      return Invalid(input.name(),
                     ".contents: set beside raw_input_contents, want one");
    }
    std::string data;
    if (raw != 0) {
      data = std::move(*request.mutable_raw_input_contents(i));
    } else {
      ATTNBIAS_ASSIGN_OR_RETURN(data, ContentsOf(input));
    }
    ATTNBIAS_RETURN_IF_ERROR(
        CheckSize(input, static_cast<int64_t>(data.size())));
    ATTNBIAS_RETURN_IF_ERROR(field.Set(input, std::move(data)));
  }
  return absl::OkStatus();
}

// Every answer repeats it.
constexpr size_t kMaxIdBytes = 256;

}  // namespace

std::string ShortenedId(const inference::ModelInferRequest& request) {
  return Shortened(request.id(), kMaxIdBytes);
}

absl::StatusOr<InferRequest> DecodeInferRequest(
    const Model& model, inference::ModelInferRequest request) {
  if (request.id().size() > kMaxIdBytes) {
    return Invalid("id: got ", request.id().size(), " bytes, want at most ",
                   kMaxIdBytes);
  }
  InferRequest decoded;
  ATTNBIAS_RETURN_IF_ERROR(SetParameters(model, request, &decoded.spec));
  ATTNBIAS_RETURN_IF_ERROR(SetInputs(model, request, &decoded.spec));
  model.Choose(&decoded.spec);
  ATTNBIAS_RETURN_IF_ERROR(CheckKnown(decoded.spec));
  for (const auto& output : request.outputs()) {
    ATTNBIAS_RETURN_IF_ERROR(
        CheckParameters(output.name(), output.parameters()));
    decoded.outputs.push_back(output.name());
  }
  decoded.id = std::move(*request.mutable_id());
  return decoded;
}

}  // namespace attnbias
