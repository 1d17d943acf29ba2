// SPDX-License-Identifier: Apache-2.0
#include "client/cli/safetensors.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/cli/byte_size.h"

namespace attnbias {
namespace {

using nlohmann::json;

constexpr char kMetadata[] = "__metadata__";
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
  const auto add_name = [](std::string* out, const SafetensorsEntry& entry) {
    out->append(entry.name);
  };
  return absl::InvalidArgumentError(
      absl::StrCat("tensor: got \"", name, "\", want one of ",
                   absl::StrJoin(file.entries(), ", ", add_name)));
}

// The number of rows, or of columns, of a window of pairs.
int64_t LengthOf(const v1::PositionList& list, const v1::Range& range) {
  return list.positions_size() > 0 ? list.positions_size()
                                   : range.end() - range.begin();
}

// Names, and where a Toeplitz part's numbers belong, under the keys that the
// Python client uses.
json Metadata(const v1::TensorHeader& header) {
  json metadata = {
      {"attnbias.fingerprint", header.fingerprint()},
      {"attnbias.encoding_fingerprint", header.encoding_fingerprint()}};
  const v1::PairExtent& pair = header.resolved_spec().pair();
  if (header.resolved_spec().has_pair()) {
    metadata["attnbias.query_length"] =
        absl::StrCat(LengthOf(pair.query_positions(), pair.queries()));
    metadata["attnbias.key_length"] =
        absl::StrCat(LengthOf(pair.key_positions(), pair.keys()));
  }
  for (const v1::TensorPart& part : header.parts()) {
    if (part.form() != v1::FORM_TOEPLITZ) continue;
    const std::string prefix = absl::StrCat("attnbias.", part.name());
    metadata[prefix + ".first_relative_position"] =
        absl::StrCat(part.first_relative_position());
    // Beside heads, if any, and relative positions.
    const bool has_columns = part.shape_size() > (pair.has_heads() ? 2 : 1);
    metadata[prefix + ".vectors"] = has_columns ? "true" : "false";
  }
  return metadata;
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

std::string SafetensorsHeader(const v1::TensorHeader& header) {
  json description;
  description[kMetadata] = Metadata(header);
  for (const v1::TensorPart& part : header.parts()) {
    const std::string& type = v1::DataType_Name(part.data_type());
    description[part.name()] = {
        {"dtype", std::string(absl::StripPrefix(type, "DATA_TYPE_"))},
        {"shape",
         std::vector<int64_t>(part.shape().begin(), part.shape().end())},
        {"data_offsets", {part.offset(), part.offset() + part.size_bytes()}}};
  }
  std::string text = description.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string size(8, '\0');
  for (int i = 0; i < 8; ++i) {
    size[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  }
  return size + text;
}

}  // namespace attnbias
