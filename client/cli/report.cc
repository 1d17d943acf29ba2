// SPDX-License-Identifier: Apache-2.0
#include "client/cli/report.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "attnbias/error.h"
#include "attnbias/v1/options.pb.h"
#include "client/cli/spec_fields.h"
#include "client/cli/words.h"

namespace attnbias {
namespace {

using google::protobuf::FieldDescriptor;

std::string TypeOf(const FieldDescriptor& field) {
  if (field.message_type() == v1::TableRef::descriptor()) {
    return "@FILE.safetensors:TENSOR | @FILE.npy | name:NAME | sha256:DIGEST";
  }
  std::string type = field.enum_type() != nullptr
                         ? absl::StrJoin(ShortNames(*field.enum_type()), " | ")
                         : std::string(field.cpp_type_name());
  return field.is_repeated() ? absl::StrCat(type, ",...") : type;
}

// A list is empty by default. Whether a table is needed depends on the values
// asked for.
std::string DefaultOf(const FieldDescriptor& field) {
  if (field.options().HasExtension(v1::default_value)) {
    const std::string& value = field.options().GetExtension(v1::default_value);
    if (value.empty()) return "optional";
    return absl::StrCat("default ", field.enum_type() != nullptr
                                        ? ShortName(*field.enum_type(), value)
                                        : value);
  }
  if (field.is_repeated() || field.message_type() != nullptr) return "optional";
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL &&
      !field.has_presence()) {
    return "default false";
  }
  return "required";
}

// A line of the list.
struct FieldRow {
  std::string name;
  std::string need;
  std::string type;
};

std::vector<FieldRow> RowsOf(const google::protobuf::Descriptor& message) {
  std::vector<FieldRow> rows;
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    if (HasParts(field)) {
      for (const FieldRow& row : RowsOf(*field.message_type())) {
        rows.push_back(
            {absl::StrCat(field.name(), ".N.", row.name), row.need, row.type});
      }
      continue;
    }
    rows.push_back({field.name(), DefaultOf(field), TypeOf(field)});
    if (field.message_type() != v1::TableRef::descriptor()) continue;
    rows.push_back(
        {absl::StrCat(field.name(), "_layout"), "optional",
         absl::StrJoin(ShortNames(*v1::TableLayout_descriptor()), " | ")});
  }
  return rows;
}

// "a, one of b | c"
std::string FieldNames(
    const google::protobuf::RepeatedPtrField<std::string>& needed) {
  return absl::StrJoin(needed, ", ", [](std::string* out, const auto& names) {
    const bool several = absl::StrContains(names, "|");
    absl::StrAppend(out, several ? "one of " : "",
                    absl::StrReplaceAll(names, {{"|", " | "}}));
  });
}

// A line for each value of an enum that decides which other fields there are.
std::string NeedsOfValues(const FieldDescriptor& field) {
  std::string text;
  bool decides = false;
  const auto& type = *field.enum_type();
  for (int i = 1; i < type.value_count(); ++i) {
    const auto& options = type.value(i)->options();
    const auto& needs = options.GetRepeatedExtension(v1::needs);
    const auto& takes = options.GetRepeatedExtension(v1::takes);
    decides = decides || !needs.empty() || !takes.empty();
    std::vector<std::string> parts;
    if (!needs.empty()) parts.push_back("needs " + FieldNames(needs));
    if (!takes.empty()) parts.push_back("takes " + FieldNames(takes));
    absl::StrAppend(&text, "  ", field.name(), "=",
                    ShortName(type, type.value(i)->name()), ": ",
                    parts.empty() ? "nothing more" : absl::StrJoin(parts, "; "),
                    "\n");
  }
  return decides ? text : "";
}

std::string FieldList(const FieldDescriptor& encoding) {
  std::string text = absl::StrCat(encoding.name(), "\n");
  const std::vector<FieldRow> rows = RowsOf(*encoding.message_type());
  int name_width = 0;
  int need_width = 0;
  for (const FieldRow& row : rows) {
    name_width = std::max(name_width, static_cast<int>(row.name.size()));
    need_width = std::max(need_width, static_cast<int>(row.need.size()));
  }
  for (const FieldRow& row : rows) {
    absl::StrAppendFormat(&text, "  %-*s %-*s %s\n", name_width, row.name,
                          need_width, row.need, row.type);
  }
  const auto& message = *encoding.message_type();
  for (int i = 0; i < message.field_count(); ++i) {
    if (message.field(i)->enum_type() == nullptr) continue;
    text += NeedsOfValues(*message.field(i));
  }
  return text;
}

// "f32" for DATA_TYPE_F32.
std::string NameOf(v1::DataType type) {
  return ShortName(*v1::DataType_descriptor(), v1::DataType_Name(type));
}

}  // namespace

absl::StatusOr<std::string> EncodingList(
    const std::vector<std::string>& names) {
  std::string text;
  for (const FieldDescriptor* encoding : Encodings()) {
    if (names.empty() || absl::c_linear_search(names, encoding->name())) {
      text += FieldList(*encoding);
    }
  }
  for (const std::string& name : names) {
    if (const absl::Status known = CheckEncoding(name); !known.ok()) {
      return known;
    }
  }
  return text;
}

std::string TableReport(const v1::TableInfo& table) {
  std::string text =
      absl::StrCat(table.name(), "\n  ", NameOf(table.data_type()), " [",
                   absl::StrJoin(table.shape(), ", "), "] of ", table.source(),
                   "\n  sha256:", table.sha256(), "\n");
  if (table.has_spec()) {
    absl::StrAppend(&text, "  ", EncodingText(table.spec()), "\n");
  }
  return text;
}

std::string HeaderReport(const v1::TensorHeader& header) {
  std::string text;
  for (const v1::TensorPart& part : header.parts()) {
    absl::StrAppend(
        &text, part.name(), "  [", absl::StrJoin(part.shape(), ", "), "]  ",
        NameOf(part.data_type()), "  ",
        ShortName(*v1::Form_descriptor(), v1::Form_Name(part.form())), "  ",
        part.size_bytes(), " bytes\n");
    if (part.form() == v1::FORM_TOEPLITZ) {
      absl::StrAppend(&text, "first relative position  ",
                      part.first_relative_position(), "\n");
    }
  }
  absl::StrAppend(&text, "fingerprint  ", header.fingerprint(), "\n");
  return text;
}

std::string DescribeReport(const v1::TensorHeader& header) {
  std::string text = HeaderReport(header);
  absl::StrAppend(&text, "encoding fingerprint  ",
                  header.encoding_fingerprint(), "\ntotal  ",
                  header.total_bytes(), " bytes\n");
  for (const v1::Range& rows : header.fully_masked_rows()) {
    absl::StrAppend(&text, "fully masked queries  ", rows.begin(), ":",
                    rows.end(), "\n");
  }
  for (const v1::DerivedValue& value : header.derived()) {
    absl::StrAppend(&text, value.name(), "  ",
                    absl::StrJoin(value.values(), ", "), "\n");
  }
  return text;
}

std::string InfoReport(const v1::GetServerInfoResponse& info) {
  std::vector<std::string> types;
  for (const int type : info.data_types()) {
    types.push_back(NameOf(static_cast<v1::DataType>(type)));
  }
  std::string text =
      absl::StrCat("version    ", info.version(), "\nbackends   ",
                   absl::StrJoin(info.backends(), ", "), "\nkernels    ",
                   absl::StrJoin(info.instruction_sets(), ", "),
                   "\ntypes      ", absl::StrJoin(types, ", "), "\nencodings  ",
                   absl::StrJoin(info.encodings(), ", "), "\n");
  const auto* limits = v1::ServerLimits::descriptor();
  for (int i = 0; i < limits->field_count(); ++i) {
    const FieldDescriptor* limit = limits->field(i);
    absl::StrAppend(
        &text, limit->name(), "  ",
        info.limits().GetReflection()->GetInt64(info.limits(), limit), "\n");
  }
  return text;
}

std::string AsJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &json, options);
  return status.ok() ? json : status.ToString();
}

std::string ErrorReport(const absl::Status& status) {
  std::string text = absl::StrCat(absl::StatusCodeToString(status.code()), ": ",
                                  InFlags(status.message()), "\n");
  for (const FieldViolation& violation : FieldViolations(status)) {
    if (absl::StrContains(status.message(), violation.field)) continue;
    absl::StrAppend(
        &text, "  ",
        InFlags(absl::StrCat(violation.field, ": ", violation.description)),
        "\n");
  }
  return text;
}

}  // namespace attnbias
