// SPDX-License-Identifier: Apache-2.0
#include "client/cli/report.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "attnbias/error.h"
#include "attnbias/internal/printable.h"
#include "attnbias/tensor.h"
#include "attnbias/v1/options.pb.h"
#include "client/cli/spec_fields.h"
#include "proto/grpc_versions.h"

namespace attnbias {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using OrderedJson = nlohmann::ordered_json;

constexpr int kIndent = 1;

bool IsNumbers(const FieldDescriptor& field) {
  return field.message_type() == v1::DoubleList::descriptor();
}

bool IsList(const FieldDescriptor& field) { return field.is_repeated() || IsNumbers(field); }

// Returns the type of a field, or of each element of a list.
std::string KindOf(const FieldDescriptor& field) {
  if (IsNumbers(field)) return "double";
  return field.message_type() != nullptr ? "table" : std::string(field.cpp_type_name());
}

// Returns a field's type, with its bounds, its axes and the fields that it requires or excludes.
std::string TypeOf(const FieldDescriptor& field) {
  const v1::FieldRule& rule = field.options().GetExtension(v1::rule);
  std::string text = field.enum_type() != nullptr
                         ? absl::StrJoin(ShortNames(*field.enum_type()), " | ")
                         : KindOf(field);
  if (IsList(field)) text += ",...";
  if (rule.has_max()) {
    const bool is_open = rule.has_above();
    absl::StrAppendFormat(&text, " in %c%.15g, %.15g]", is_open ? '(' : '[',
                          is_open ? rule.above() : rule.min(), rule.max());
  }
  if (rule.even()) text += ", even";
  if (!rule.shape().empty()) absl::StrAppend(&text, " [", rule.shape(), "]");
  if (!rule.only_with().empty()) {
    absl::StrAppend(&text, ", only with ", rule.only_with());
  }
  if (!rule.not_with().empty()) {
    absl::StrAppend(&text, ", not with ", rule.not_with());
  }
  return text;
}

std::string Joined(const google::protobuf::RepeatedPtrField<std::string>& names) {
  return internal::Printable(absl::StrJoin(names, ", "));
}

// Returns "f32" for DATA_TYPE_F32.
std::string NameOf(v1::DataType type) {
  return ShortName(*v1::DataType_descriptor(), v1::DataType_Name(type));
}

constexpr int64_t kShown = 6;

template <typename T>
T Load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

double FromHalf(uint16_t bits) {
  // float has the same layout with three more exponent bits, so its exponent bias is larger by 112.
  double magnitude = std::bit_cast<float>((bits & uint32_t{0x7fff}) << 13) * 0x1p112;
  if (magnitude >= 0x1p16) magnitude = magnitude == 0x1p16 ? INFINITY : NAN;
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace

std::string EncodingList(const std::vector<NamedEncoding>& encodings) {
  std::string text;
  for (const NamedEncoding& encoding : encodings) {
    absl::StrAppend(&text, encoding.name, "\n");
    const std::vector<Argument> arguments = ArgumentsOf(encoding);
    int name_width = 0;
    int need_width = 0;
    for (const Argument& each : arguments) {
      name_width = std::max(name_width, static_cast<int>(each.name.size()));
      need_width = std::max(need_width, static_cast<int>(each.need.size()));
    }
    for (const Argument& each : arguments) {
      absl::StrAppendFormat(&text, "  %-*s %-*s %s\n", name_width, each.name, need_width, each.need,
                            TypeOf(*each.field));
    }
    if (encoding.preset != nullptr) {
      absl::StrAppend(&text, "  = ", EncodingText(encoding.preset->spec()), "\n");
    }
  }
  return text;
}

std::string EncodingListAsJson(const std::vector<NamedEncoding>& encodings) {
  OrderedJson list = OrderedJson::array();
  for (const NamedEncoding& encoding : encodings) {
    const auto& extents =
        encoding.field->message_type()->options().GetRepeatedExtension(v1::extent);
    OrderedJson json = {{"name", encoding.name},
                        {"extent", absl::StrJoin(extents, " or ")},
                        {"fields", OrderedJson::array()}};
    for (const Argument& each : ArgumentsOf(encoding)) {
      OrderedJson field = {{"name", each.name}, {"required", each.need == "required"}};
      if (const auto* type = each.field->enum_type()) {
        field["values"] = ShortNames(*type);
      } else {
        field["type"] = KindOf(*each.field);
      }
      field["list"] = IsList(*each.field);
      field["rule"] = OrderedJson::parse(JsonOf(each.field->options().GetExtension(v1::rule)));
      json["fields"].push_back(std::move(field));
    }
    if (encoding.preset != nullptr) json["preset_of"] = EncodingText(encoding.preset->spec());
    list.push_back(std::move(json));
  }
  return OrderedJson{{"encodings", std::move(list)}}.dump(kIndent) + "\n";
}

std::string TableReport(const v1::TableInfo& table) {
  std::string text =
      absl::StrCat(internal::Printable(table.name()), "\n  ", NameOf(table.data_type()), " [",
                   absl::StrJoin(table.shape(), ", "), "] of ", internal::Printable(table.source()),
                   "\n  sha256:", internal::Printable(table.sha256()), "\n");
  if (table.has_spec()) {
    absl::StrAppend(&text, "  ", internal::Printable(EncodingText(table.spec())), "\n");
  }
  return text;
}

std::string HeaderReport(const v1::TensorHeader& header) {
  std::string text;
  for (const v1::TensorPart& part : header.parts()) {
    absl::StrAppend(&text, part.name(), "  [", absl::StrJoin(part.shape(), ", "), "]  ",
                    NameOf(part.data_type()), "  ",
                    ShortName(*v1::Form_descriptor(), v1::Form_Name(part.form())), "  ",
                    part.size_bytes(), " bytes\n");
    if (part.form() == v1::FORM_TOEPLITZ) {
      absl::StrAppend(&text, "first relative position  ", part.first_relative_position(), "\n");
    }
  }
  absl::StrAppend(&text, "fingerprint  ", header.fingerprint(), "\n");
  return text;
}

std::string DescribeReport(const v1::TensorHeader& header) {
  std::string text =
      absl::StrCat(HeaderReport(header), "encoding fingerprint  ", header.encoding_fingerprint(),
                   "\ntotal  ", header.total_bytes(), " bytes\n");
  for (const v1::Range& rows : header.fully_masked_rows()) {
    absl::StrAppend(&text, "fully masked queries  ", rows.begin(), ":", rows.end(), "\n");
  }
  for (const v1::DerivedValue& value : header.derived()) {
    absl::StrAppend(&text, internal::Printable(value.name()), "  ",
                    absl::StrJoin(value.values(), ", "), "\n");
  }
  return text;
}

std::string InfoReport(const v1::GetServerInfoResponse& info) {
  std::vector<std::string> types;
  for (const int type : info.data_types()) {
    types.push_back(NameOf(static_cast<v1::DataType>(type)));
  }
  std::string text = absl::StrCat(
      "version    ", internal::Printable(info.version()), "\nbackends   ", Joined(info.backends()),
      "\nkernels    ", Joined(info.instruction_sets()), "\ntypes      ", absl::StrJoin(types, ", "),
      "\nencodings  ", Joined(info.encodings()), "\n");
  const auto* limits = v1::ServerLimits::descriptor();
  for (int i = 0; i < limits->field_count(); ++i) {
    const FieldDescriptor* limit = limits->field(i);
    absl::StrAppend(&text, limit->name(), "  ",
                    info.limits().GetReflection()->GetInt64(info.limits(), limit), "\n");
  }
  return text;
}

std::string JsonOf(const Message& message, google::protobuf::util::JsonPrintOptions options) {
  options.preserve_proto_field_names = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  return status.ok() ? text : status.ToString();
}

std::string AsJson(const Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  PrintUnsetFields(&options);
  return JsonOf(message, options);
}

double ReadElement(v1::DataType type, const std::byte* bytes) {
  switch (type) {
    case v1::DATA_TYPE_F64:
      return Load<double>(bytes);
    case v1::DATA_TYPE_F32:
      return Load<float>(bytes);
    case v1::DATA_TYPE_F16:
      return FromHalf(Load<uint16_t>(bytes));
    case v1::DATA_TYPE_BF16:
      return std::bit_cast<float>(uint32_t{Load<uint16_t>(bytes)} << 16);
    case v1::DATA_TYPE_I32:
      return Load<int32_t>(bytes);
    default:
      return NAN;
  }
}

std::string PreviewNumbers(const v1::TensorPart& part, absl::Span<const std::byte> bytes,
                           const v1::Range* heads) {
  const int rank = part.shape_size();
  const int64_t columns = rank > 0 ? part.shape(rank - 1) : 1;
  const int64_t rows = rank > 1 ? part.shape(rank - 2) : 1;
  std::string text;
  if (bytes.empty()) return text;
  if (heads != nullptr && rank > 2) {
    absl::StrAppend(&text, "head ", heads->begin(), ":\n");
  }
  for (int64_t row = 0; row < rows; ++row) {
    if (rows > kShown && row == kShown / 2) {
      text += "  ...\n";
      row = rows - kShown / 2;
    }
    if (heads != nullptr && rank == 2) {
      absl::StrAppendFormat(&text, "head %-5d", heads->begin() + row);
    }
    for (int64_t column = 0; column < columns; ++column) {
      if (columns > kShown && column == kShown / 2) {
        text += "  ...";
        column = columns - kShown / 2;
      }
      const int64_t at = row * columns + column;
      absl::StrAppendFormat(
          &text, " %12.7g",
          ReadElement(part.data_type(), bytes.data() + at * ElementSize(part.data_type())));
    }
    text += "\n";
  }
  return text;
}

std::string ErrorReport(const absl::Status& status) {
  std::string text =
      absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message(), "\n");
  for (const FieldViolation& violation : FieldViolations(status)) {
    if (absl::StrContains(status.message(), violation.field)) continue;
    absl::StrAppend(&text, "  ", violation.field, ": ", violation.description, "\n");
  }
  return text;
}

}  // namespace attnbias
