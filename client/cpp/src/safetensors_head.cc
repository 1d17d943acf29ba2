// SPDX-License-Identifier: Apache-2.0
#include "attnbias/internal/safetensors_head.h"

#include <google/protobuf/util/json_util.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace attnbias::internal {
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
int64_t ExtentOf(const v1::PositionList& list, const v1::Range& range) {
  return list.positions_size() > 0 ? list.positions_size()
                                   : range.end() - range.begin();
}

// Where position 0 stands among `length` positions from `first` on.
std::string IndexOfZero(int64_t first, int64_t length) {
  return first <= 0 && -first < length ? absl::StrCat(-first) : "none";
}

bool HidesPairs(const v1::Mask& mask) {
  return mask.causal() || mask.has_window_left() || mask.has_window_right();
}

// What docs/protocol.md says, as the Python client writes it.
absl::StatusOr<json> Metadata(const v1::TensorHeader& header,
                              const v1::Mask& mask) {
  const v1::TensorSpec& spec = header.resolved_spec();
  const auto text = ToJson(spec);
  if (!text.ok()) return text.status();
  json metadata = {
      {"attnbias.fingerprint", header.fingerprint()},
      {"attnbias.encoding_fingerprint", header.encoding_fingerprint()},
      {"attnbias.resolved_spec", *text}};
  const v1::PairExtent& pair = spec.pair();
  const int64_t queries = ExtentOf(pair.query_positions(), pair.queries());
  const int64_t keys = ExtentOf(pair.key_positions(), pair.keys());
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
      if (HidesPairs(mask)) {
        v1::Mask without_fill = mask;
        without_fill.clear_fill();
        const auto json_mask = ToJson(without_fill);
        if (!json_mask.ok()) return json_mask.status();
        metadata["attnbias.diagonals.mask"] = *json_mask;
      }
    }
    if (part.name() == "border" && spec.has_pair()) {
      metadata["attnbias.border.class_query"] =
          IndexOfZero(pair.query_offset() + pair.queries().begin(), queries);
      metadata["attnbias.border.class_key"] =
          IndexOfZero(pair.keys().begin(), keys);
    }
  }
  return metadata;
}

}  // namespace

absl::StatusOr<std::string> SafetensorsHead(
    const v1::TensorHeader& header, const v1::Mask& mask,
    const std::map<std::string, std::string>& more) {
  auto metadata = Metadata(header, mask);
  if (!metadata.ok()) return metadata.status();
  metadata->update(json(more));
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

}  // namespace attnbias::internal
