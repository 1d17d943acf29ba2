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
// The format's own bound on a header.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

absl::Status NotSafetensors(absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("not a .safetensors file: ", why));
}

// Header and data, data's place in the file known.
struct Contents {
  json header;
  int64_t data_offset;
};

absl::StatusOr<Contents> ReadHeader(InputFile& file) {
  if (file.size() < 8) return NotSafetensors("it is too short");
  const auto start = file.Read(0, 8);
  if (!start.ok()) return start.status();
  uint64_t size = 0;
  for (int i = 7; i >= 0; --i) {
    size = size << 8 | static_cast<unsigned char>((*start)[i]);
  }
  if (size > kMaxHeaderBytes || size > static_cast<uint64_t>(file.size() - 8)) {
    return NotSafetensors(absl::StrCat("its header claims ", size, " bytes"));
  }
  const auto text = file.Read(8, static_cast<int64_t>(size));
  if (!text.ok()) return text.status();
  Contents contents{json::parse(*text, nullptr, /*allow_exceptions=*/false),
                    8 + static_cast<int64_t>(size)};
  if (!contents.header.is_object()) {
    return NotSafetensors("its header is not a JSON object");
  }
  contents.header.erase(kMetadata);
  return contents;
}

absl::StatusOr<json> FindTensor(const json& header, const std::string& name) {
  if (!name.empty() && header.contains(name)) return header[name];
  if (name.empty() && header.size() == 1) return header.front();
  std::vector<std::string> names;
  for (const auto& [key, value] : header.items()) names.push_back(key);
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor: got \"", name, "\", want one of ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<v1::DataType> DataTypeOf(const json& dtype) {
  if (dtype == "F64") return v1::DATA_TYPE_F64;
  if (dtype == "F32") return v1::DATA_TYPE_F32;
  if (dtype == "F16") return v1::DATA_TYPE_F16;
  if (dtype == "BF16") return v1::DATA_TYPE_BF16;
  return absl::InvalidArgumentError(absl::StrCat(
      "dtype: got ", dtype.dump(), ", want F64, F32, F16 or BF16"));
}

// A length or offset; nothing unless it is an integer of at least 0.
bool ToLength(const json& value, int64_t* length) {
  if (!value.is_number_unsigned()) return false;
  const auto number = value.get<uint64_t>();
  *length = static_cast<int64_t>(number);
  return *length >= 0;
}

struct Place {
  int64_t begin = 0;
  int64_t end = 0;
};

absl::StatusOr<Place> PlaceOf(const json& tensor, int64_t data_size) {
  Place place;
  const json offsets = tensor.value("data_offsets", json());
  if (!offsets.is_array() || offsets.size() != 2 ||
      !ToLength(offsets[0], &place.begin) ||
      !ToLength(offsets[1], &place.end) || place.begin > place.end ||
      place.end > data_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data_offsets: got ", offsets.dump(),
        ", want [begin, end] inside the file's ", data_size, " bytes of data"));
  }
  return place;
}

}  // namespace

absl::StatusOr<v1::InlineTable> ReadSafetensors(InputFile& file,
                                                const std::string& name,
                                                int64_t max_bytes) {
  const auto contents = ReadHeader(file);
  if (!contents.ok()) return contents.status();
  const auto tensor = FindTensor(contents->header, name);
  if (!tensor.ok()) return tensor.status();
  if (!tensor->is_object())
    return NotSafetensors("a tensor has no description");
  const auto type = DataTypeOf(tensor->value("dtype", json()));
  if (!type.ok()) return type.status();
  v1::InlineTable table;
  table.set_data_type(*type);
  const json shape = tensor->value("shape", json());
  if (!shape.is_array()) return NotSafetensors("a tensor has no shape");
  for (const json& item : shape) {
    int64_t length = 0;
    if (!ToLength(item, &length)) {
      return NotSafetensors(absl::StrCat("a shape is ", shape.dump()));
    }
    table.add_shape(length);
  }
  const auto size = ByteSize(table.data_type(), table.shape());
  if (!size.ok()) return size.status();
  const auto place = PlaceOf(*tensor, file.size() - contents->data_offset);
  if (!place.ok()) return place.status();
  if (place->end - place->begin != *size) {
    return absl::InvalidArgumentError(
        absl::StrCat("data_offsets: got ", place->end - place->begin,
                     " bytes, want ", *size, " for shape ", shape.dump()));
  }
  if (absl::Status status = CheckAtMost(*size, max_bytes); !status.ok()) {
    return status;
  }
  auto data = file.Read(contents->data_offset + place->begin, *size);
  if (!data.ok()) return data.status();
  table.set_data(*std::move(data));
  return table;
}

namespace {

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
