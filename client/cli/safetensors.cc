// SPDX-License-Identifier: Apache-2.0
#include "client/cli/safetensors.h"

#include <google/protobuf/util/json_util.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/cli/file_io.h"

namespace attnbias {
namespace {

using nlohmann::json;

constexpr size_t kSizeBytes = 8;
constexpr size_t kPayloadPlace = 64;  // its multiples

absl::StatusOr<std::string> ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &text, options);
  if (!status.ok()) return absl::InternalError(status.ToString());
  return text;
}

// The number of rows, or of columns, of a window of pairs.
int64_t LengthOf(const v1::PositionList& list, const v1::Range& range) {
  return list.positions_size() > 0 ? list.positions_size()
                                   : range.end() - range.begin();
}

// Where position 0 stands among `length` positions from `first` on.
std::string IndexOfZero(int64_t first, int64_t length) {
  return first <= 0 && -first < length ? absl::StrCat(-first) : "none";
}

// What docs/protocol.md says, as the Python client writes it.
absl::StatusOr<json> Metadata(const v1::TensorHeader& header) {
  const v1::TensorSpec& spec = header.resolved_spec();
  const auto text = ToJson(spec);
  if (!text.ok()) return text.status();
  json metadata = {
      {"attnbias.fingerprint", header.fingerprint()},
      {"attnbias.encoding_fingerprint", header.encoding_fingerprint()},
      {"attnbias.resolved_spec", *text}};
  if (!header.column_axes().empty()) {
    metadata["attnbias.column_axes"] = absl::StrJoin(header.column_axes(), ",");
  }
  const v1::PairExtent& pair = spec.pair();
  const int64_t queries = LengthOf(pair.query_positions(), pair.queries());
  const int64_t keys = LengthOf(pair.key_positions(), pair.keys());
  for (const v1::TensorPart& part : header.parts()) {
    if (part.form() == v1::FORM_TOEPLITZ || part.form() == v1::FORM_KEY_ROW) {
      metadata["attnbias.query_length"] = absl::StrCat(queries);
      metadata["attnbias.key_length"] = absl::StrCat(keys);
    }
    if (part.form() == v1::FORM_TOEPLITZ) {
      metadata["attnbias.diagonals.first_relative_position"] =
          absl::StrCat(part.first_relative_position());
      // Beside heads, if any, and relative positions.
      const bool has_columns = part.shape_size() > (pair.has_heads() ? 2 : 1);
      metadata["attnbias.diagonals.vectors"] = has_columns ? "true" : "false";
    }
    if (part.name() == "border" && spec.has_pair()) {
      metadata["attnbias.border.class_query"] =
          IndexOfZero(pair.query_offset() + pair.queries().begin(), queries);
      metadata["attnbias.border.class_key"] = IndexOfZero(
          pair.has_key_positions() ? pair.key_positions().positions(0)
                                   : pair.keys().begin(),
          keys);
    }
  }
  return metadata;
}

absl::StatusOr<v1::DataType> DataTypeOf(const std::string& dtype) {
  if (dtype == "F64") return v1::DATA_TYPE_F64;
  if (dtype == "F32") return v1::DATA_TYPE_F32;
  if (dtype == "F16") return v1::DATA_TYPE_F16;
  if (dtype == "BF16") return v1::DATA_TYPE_BF16;
  return absl::InvalidArgumentError(
      absl::StrCat("dtype: got \"", dtype, "\", want F64, F32, F16 or BF16"));
}

absl::StatusOr<SafetensorsEntry> FindTensor(const SafetensorsFile& file,
                                            const std::string& name) {
  if (const SafetensorsEntry* entry = file.FindOrOnly(name)) return *entry;
  const auto add_name = [&](std::string* out, const SafetensorsEntry& entry) {
    absl::StrAppend(out, name.empty() ? ":" : "", entry.name);
  };
  const std::string names = absl::StrJoin(file.entries(), ", ", add_name);
  return absl::InvalidArgumentError(
      name.empty()
          ? absl::StrCat("got no tensor, want one after the name: ", names)
          : absl::StrCat("tensor: got \"", name, "\", want one of ", names));
}

}  // namespace

absl::StatusOr<v1::InlineTable> ReadSafetensors(SafetensorsFile& file,
                                                const std::string& name,
                                                int64_t max_bytes) {
  const auto tensor = FindTensor(file, name);
  if (!tensor.ok()) return tensor.status();
  const auto type = DataTypeOf(tensor->dtype);
  if (!type.ok()) return type.status();
  if (absl::Status status = CheckAtMost(tensor->bytes(), max_bytes);
      !status.ok()) {
    return status;
  }
  auto data = file.Read(*tensor);
  if (!data.ok()) return data.status();
  v1::InlineTable table;
  table.set_data_type(*type);
  table.mutable_shape()->Add(tensor->shape.begin(), tensor->shape.end());
  table.set_data(*std::move(data));
  return table;
}

absl::StatusOr<std::string> SafetensorsHead(const v1::TensorHeader& header) {
  auto metadata = Metadata(header);
  if (!metadata.ok()) return metadata.status();
  json description;
  description["__metadata__"] = *std::move(metadata);
  for (const v1::TensorPart& part : header.parts()) {
    const std::string& type = v1::DataType_Name(part.data_type());
    description[part.name()] = {
        {"dtype", std::string(absl::StripPrefix(type, "DATA_TYPE_"))},
        {"shape",
         std::vector<int64_t>(part.shape().begin(), part.shape().end())},
        {"data_offsets", {part.offset(), part.offset() + part.size_bytes()}}};
  }
  std::string text = description.dump();
  while ((kSizeBytes + text.size()) % kPayloadPlace != 0) text.push_back(' ');
  std::string size(kSizeBytes, '\0');
  for (size_t i = 0; i < kSizeBytes; ++i) {
    size[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  }
  return size + text;
}

}  // namespace attnbias
