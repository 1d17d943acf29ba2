// SPDX-License-Identifier: Apache-2.0
#include "server/service/oip/infer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "attnbias/v1/tensor.pb.h"
#include "core/base/errors.h"
#include "core/request/rules.h"
#include "core/tensor/data_type.h"
#include "google/protobuf/message.h"
#include "google/protobuf/util/json_util.h"
#include "grpcpp/support/slice.h"
#include "server/service/grpc_status.h"
#include "server/service/messages.h"

namespace attnbias {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;
using InputTensor = inference::ModelInferRequest::InferInputTensor;

// Maximum index in a path. No encoding has a list of messages this long.
constexpr int kMaxIndex = 63;
// Bounds messages parsed from JSON: an empty object takes fifty times as much memory as its text.
constexpr size_t kMaxJsonBytes = size_t{64} << 10;

void AppendView(std::string* text, std::string_view view) { text->append(view); }

absl::Status NoSuchField(const Model& model, const std::string& path) {
  return Invalid(Shortened(path), ": ", model.name(),
                 " has no such field, want a field that ModelConfig lists: ",
                 absl::StrJoin(model.Fields(), ", ", AppendView));
}

bool IsMessage(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
}

absl::Status CheckUnset(const std::string& path, const Message& message,
                        const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  const bool set = field.is_repeated() ? reflection.FieldSize(message, &field) > 0
                                       : reflection.HasField(message, &field);
  if (!set) return absl::OkStatus();
  return Invalid(path, ": set twice, want it once");
}

// Returns the message in `field` (at `index` if the field is a list); null if there is none.
Message* Enter(Message* message, const FieldDescriptor& field, const std::string* index) {
  const Reflection& reflection = *message->GetReflection();
  if (!IsMessage(field)) return nullptr;
  if (index == nullptr) return reflection.MutableMessage(message, &field);
  int wanted = 0;
  if (!absl::SimpleAtoi(*index, &wanted) || wanted < 0 || wanted > kMaxIndex) {
    return nullptr;
  }
  while (reflection.FieldSize(*message, &field) <= wanted) {
    reflection.AddMessage(message, &field);
  }
  return reflection.MutableRepeatedMessage(message, &field, wanted);
}

// Describes the values that a field accepts.
std::string Wanted(const FieldDescriptor& field) {
  std::string one(field.type_name());
  if (field.type() == FieldDescriptor::TYPE_ENUM) {
    one = ShortNames(*field.enum_type());
  } else if (IsMessage(field)) {
    one = absl::StrCat("a message of type ", field.message_type()->name(), " in JSON");
  }
  return field.is_repeated() ? absl::StrCat("a JSON list, each ", one) : one;
}

// A field of a TensorSpec, identified by its path as in error messages: "pair.query_length".
class SpecField {
 public:
  // Returns the field at `path` in `spec`, which outlives the result. Creates the messages along
  // the path. A number in the path is an index into a list of messages, which grows if necessary.
  //
  // INVALID_ARGUMENT  `model` has no such field, or a field that excludes it is set
  static absl::StatusOr<SpecField> Find(const Model& model, const std::string& path,
                                        v1::TensorSpec* spec) {
    const std::vector<std::string> names = absl::StrSplit(path, '.');
    if (!absl::c_linear_search(model.Fields(), names.front())) {
      return NoSuchField(model, path);
    }
    Message* message = spec;
    for (size_t i = 0;; ++i) {
      const FieldDescriptor* const field = message->GetDescriptor()->FindFieldByName(names[i]);
      if (field == nullptr) return NoSuchField(model, path);
      const OneofDescriptor* const oneof = field->real_containing_oneof();
      if (oneof != nullptr) {
        const FieldDescriptor* const other =
            message->GetReflection()->GetOneofFieldDescriptor(*message, oneof);
        if (other != nullptr && other != field) {
          return Invalid(path, ": set together with ", other->name(), ", want one of them");
        }
      }
      if (i + 1 == names.size()) {
        return SpecField(path, message, field);
      }
      const std::string* index = nullptr;
      if (field->is_repeated()) index = &names[++i];
      message = Enter(message, *field, index);
      if (message == nullptr || i + 1 == names.size()) {
        return NoSuchField(model, path);
      }
    }
  }

  // Sets a field that has not been set yet, or returns INVALID_ARGUMENT. A string may be text,
  // JSON, or the name of an enum value, with or without the prefix that the enum's values share.
  absl::Status Set(const inference::InferParameter& value) const {
    using Value = inference::InferParameter;
    ATTNBIAS_RETURN_IF_ERROR(CheckUnset(path_, *message_, *field_));
    switch (value.parameter_choice_case()) {
      case Value::kBoolParam:
        return SetJson(value.bool_param() ? "true" : "false");
      case Value::kInt64Param:
        return SetJson(absl::StrCat(value.int64_param()));
      case Value::kUint64Param:
        return SetJson(absl::StrCat(value.uint64_param()));
      case Value::kDoubleParam: {
        const double number = value.double_param();
        if (std::isnan(number)) return SetJson("\"NaN\"");
        if (std::isinf(number)) {
          return SetJson(number > 0 ? "\"Infinity\"" : "\"-Infinity\"");
        }
        return SetJson(absl::StrFormat("%.17g", number));
      }
      case Value::kStringParam:
        return SetText(value.string_param());
      case Value::PARAMETER_CHOICE_NOT_SET:
        break;
    }
    return Invalid(path_, ": got no value, want ", Wanted(*field_));
  }

  // Sets a table or position lists to `data`, which is row-major and little-endian. The size of
  // `data` matches the tensor's shape and type.
  absl::Status Set(const InputTensor& tensor, std::string data) const {
    if (IsMessage(*field_)) {
      if (field_->message_type() == v1::TableRef::descriptor() && !field_->is_repeated()) {
        return SetTable(tensor, std::move(data));
      }
      if (field_->message_type() == v1::PositionList::descriptor()) {
        return SetPositions(tensor, data);
      }
    }
    return Invalid(path_, ": got an input, want a parameter");
  }

 private:
  SpecField(std::string path, Message* message, const FieldDescriptor* field)
      : path_(std::move(path)), message_(message), field_(field) {}

  absl::Status SetText(const std::string& text) const {
    const Reflection& reflection = *message_->GetReflection();
    if (field_->is_repeated()) return SetJson(text);
    if (field_->type() == FieldDescriptor::TYPE_STRING) {
      reflection.SetString(message_, field_, text);
      return absl::OkStatus();
    }
    if (field_->type() != FieldDescriptor::TYPE_ENUM) return SetJson(text);
    const EnumDescriptor& type = *field_->enum_type();
    for (int i = 0; i < type.value_count(); ++i) {
      const EnumValueDescriptor& value = *type.value(i);
      if (text != value.name() && text != ShortName(type, value.number())) {
        continue;
      }
      reflection.SetEnum(message_, field_, &value);
      return absl::OkStatus();
    }
    return Invalid(path_, ": got '", Shortened(text), "', want ", Wanted(*field_));
  }

  absl::Status SetJson(const std::string& text) const {
    if (text.size() > kMaxJsonBytes) {
      return Invalid(path_, ": got JSON of ", text.size(), " bytes, want at most ", kMaxJsonBytes);
    }
    const std::unique_ptr<Message> read(message_->New());
    std::vector<const FieldDescriptor*> set;
    const bool parsed = google::protobuf::util::JsonStringToMessage(
                            absl::StrCat("{\"", field_->name(), "\": ", text, "}"), read.get())
                            .ok();
    read->GetReflection()->ListFields(*read, &set);
    // Text after the value would set other fields.
    const bool alone = set.empty() || (set.size() == 1 && set[0] == field_);
    if (!parsed || !alone) {
      return Invalid(path_, ": got ", Shortened(text), ", want ", Wanted(*field_));
    }
    message_->MergeFrom(*read);
    return absl::OkStatus();
  }

  absl::Status SetTable(const InputTensor& tensor, std::string data) const {
    const auto type = absl::c_find(kOipDataTypes, tensor.datatype());
    if (type == kOipDataTypes.end() || *type == OipNameOf(DataType::kI32)) {
      return Invalid(path_, ".datatype: got '", Shortened(tensor.datatype()),
                     "', want FP64, FP32, FP16 or BF16");
    }
    auto& ref =
        static_cast<v1::TableRef&>(*message_->GetReflection()->MutableMessage(message_, field_));
    if (ref.source_case() != v1::TableRef::SOURCE_NOT_SET) {
      return Invalid(path_, ": set twice, want it once");
    }
    v1::InlineTable& table = *ref.mutable_inline_table();
    table.set_data_type(static_cast<v1::DataType>(type - kOipDataTypes.begin() + 1));
    *table.mutable_shape() = tensor.shape();
    *table.mutable_data() = std::move(data);
    return absl::OkStatus();
  }

  absl::Status SetPositions(const InputTensor& tensor, const std::string& data) const {
    ATTNBIAS_RETURN_IF_ERROR(CheckUnset(path_, *message_, *field_));
    const bool are_doubles = tensor.datatype() == OipNameOf(DataType::kF64);
    if (!are_doubles && tensor.datatype() != kOipPositions) {
      return Invalid(path_, ".datatype: got '", Shortened(tensor.datatype()), "', want ",
                     std::string(kOipPositions), " or FP64");
    }
    const int rank = tensor.shape_size();
    if (rank != 1 && !(rank == 2 && field_->is_repeated())) {
      return Invalid(path_, ".shape: got ", rank, " axes, want 1",
                     field_->is_repeated() ? " or 2" : "");
    }
    const int64_t lists = rank == 2 ? tensor.shape(0) : 1;
    if (lists > kMaxIndex + 1) {
      return Invalid(path_, ".shape: got ", lists, " lists, want at most ", kMaxIndex + 1);
    }
    const auto length = static_cast<int>(tensor.shape(rank - 1));
    const char* from = data.data();
    const auto copy_list = [length, &from](auto& numbers) {
      static_assert(sizeof(*numbers.data()) == sizeof(int64_t));
      numbers.Resize(length, 0);
      std::memcpy(numbers.mutable_data(), from, length * sizeof(int64_t));
      from += length * sizeof(int64_t);
    };
    const Reflection& reflection = *message_->GetReflection();
    for (int64_t i = 0; i < lists; ++i) {
      auto& list = static_cast<v1::PositionList&>(
          field_->is_repeated() ? *reflection.AddMessage(message_, field_)
                                : *reflection.MutableMessage(message_, field_));
      if (are_doubles) {
        copy_list(*list.mutable_doubles());
      } else {
        copy_list(*list.mutable_positions());
      }
    }
    return absl::OkStatus();
  }

  std::string path_;
  Message* message_;
  const FieldDescriptor* field_;
};

// A parameter that Triton's clients set for streams. It has no effect here: the last response to a
// request is marked as such, so no empty response is needed.
constexpr char kEmptyFinalResponse[] = "triton_enable_empty_final_response";

// Parameters that Triton's clients send to its schedulers.
constexpr std::string_view kScheduling[] = {"priority", "sequence_end", "sequence_id",
                                            "sequence_start", "timeout"};

absl::Status SetParameters(const Model& model, const inference::ModelInferRequest& request,
                           v1::TensorSpec* spec) {
  // Sorted, so that errors do not depend on the map's order.
  const std::map<std::string, inference::InferParameter> parameters(request.parameters().begin(),
                                                                    request.parameters().end());
  for (const auto& [path, value] : parameters) {
    if (path == kEmptyFinalResponse) continue;
    if (absl::c_linear_search(kScheduling, path)) {
      return Invalid(path,
                     ": got a Triton scheduler setting, want none: "
                     "this server has no scheduler");
    }
    ATTNBIAS_ASSIGN_OR_RETURN(const SpecField field, SpecField::Find(model, path, spec));
    ATTNBIAS_RETURN_IF_ERROR(field.Set(value));
  }
  return absl::OkStatus();
}

// HTTP parameters that KServe's client also sends with a tensor over gRPC.
constexpr std::string_view kIdleParameters[] = {"binary_data", "binary_data_size"};

// Rejects features that only other servers have: shared memory and classification.
template <typename Parameters>
absl::Status CheckParameters(const std::string& tensor, const Parameters& parameters) {
  for (const auto& [name, value] : parameters) {
    if (absl::c_linear_search(kIdleParameters, name)) continue;
    return absl::UnimplementedError(absl::StrCat(Shortened(tensor), ".parameters: got '",
                                                 Shortened(name),
                                                 "', which this server does not recognize"));
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
  // Little-endian, like this machine.
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(numbers[0])};
}

// Returns the bytes of the list for the input's datatype. The other lists must be empty.
absl::StatusOr<std::string> ContentsOf(const InputTensor& input) {
  const inference::InferTensorContents& contents = input.contents();
  const std::string& type = input.datatype();
  const bool has_others = (type != kOipPositions && !contents.int64_contents().empty()) ||
                          (type != "FP32" && !contents.fp32_contents().empty()) ||
                          (type != "FP64" && !contents.fp64_contents().empty());
  if (has_others) {
    return Invalid(input.name(), ".contents: got numbers of a type other than ", Shortened(type),
                   ", want that type, or raw_input_contents");
  }
  if (type == "FP32") return BytesIn(contents.fp32_contents());
  if (type == "FP64") return BytesIn(contents.fp64_contents());
  return BytesIn(contents.int64_contents());
}

absl::Status CheckSize(const InputTensor& input, int64_t got) {
  const int64_t element = ElementBytes(input.datatype());
  if (element == 0) {
    return Invalid(input.name(), ".datatype: got '", Shortened(input.datatype()),
                   "', want FP64, FP32, FP16, BF16 or INT64");
  }
  int64_t want = element;
  for (const int64_t length : input.shape()) {
    if (length < 1 || __builtin_mul_overflow(want, length, &want)) {
      return Invalid(input.name(), ".shape: got an axis of length ", length,
                     ", want lengths of at least 1 and fewer than 2^63 bytes in total");
    }
  }
  if (got == want) return absl::OkStatus();
  return Invalid(input.name(), ": got ", got, " bytes, want ", want, " for its shape and datatype");
}

absl::Status SetInputs(const Model& model, inference::ModelInferRequest& request,
                       v1::TensorSpec* spec) {
  const int raw = request.raw_input_contents_size();
  if (raw != 0 && raw != request.inputs_size()) {
    return Invalid("raw_input_contents: got ", raw, ", want ", request.inputs_size(),
                   ", one for each input, or none");
  }
  for (int i = 0; i < request.inputs_size(); ++i) {
    const InputTensor& input = request.inputs(i);
    ATTNBIAS_ASSIGN_OR_RETURN(const SpecField field, SpecField::Find(model, input.name(), spec));
    ATTNBIAS_RETURN_IF_ERROR(CheckParameters(input.name(), input.parameters()));
    if (raw != 0 && input.has_contents()) {
      return Invalid(input.name(),
                     ".contents: set together with raw_input_contents, want one of them");
    }
    std::string data;
    if (raw != 0) {
      data = std::move(*request.mutable_raw_input_contents(i));
    } else {
      ATTNBIAS_ASSIGN_OR_RETURN(data, ContentsOf(input));
    }
    ATTNBIAS_RETURN_IF_ERROR(CheckSize(input, static_cast<int64_t>(data.size())));
    ATTNBIAS_RETURN_IF_ERROR(field.Set(input, std::move(data)));
  }
  return absl::OkStatus();
}

// Bounds the id, which every response repeats.
constexpr size_t kMaxIdBytes = 256;

}  // namespace

absl::Status InferRequest::Decode(inference::ModelInferRequest message) {
  id = Shortened(message.id(), kMaxIdBytes);
  ATTNBIAS_ASSIGN_OR_RETURN(model,
                            Model::Find("model_", message.model_name(), message.model_version()));
  if (message.id().size() > kMaxIdBytes) {
    return Invalid("id: got ", message.id().size(), " bytes, want at most ", kMaxIdBytes);
  }
  ATTNBIAS_RETURN_IF_ERROR(SetParameters(*model, message, &spec));
  ATTNBIAS_RETURN_IF_ERROR(SetInputs(*model, message, &spec));
  model->Choose(&spec);
  ATTNBIAS_RETURN_IF_ERROR(CheckKnown(spec));
  for (const auto& output : message.outputs()) {
    ATTNBIAS_RETURN_IF_ERROR(CheckParameters(output.name(), output.parameters()));
    outputs.push_back(output.name());
  }
  return absl::OkStatus();
}

namespace {

using Response = inference::ModelInferResponse;

Response Begin(const InferRequest& request, const Plan& plan) {
  Response response;
  response.set_model_name(request.model->name());
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

grpc::ByteBuffer FrameInferResponse(const InferRequest& request, const Plan& plan,
                                    const std::vector<Part>& outputs,
                                    absl::Span<const Chunk> chunks) {
  Response response = Begin(request, plan);
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

grpc::ByteBuffer FrameStreamResponse(const InferRequest& request, const Plan& plan,
                                     const Piece& piece, bool last, const Chunk& chunk) {
  Response response = Begin(request, plan);
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
