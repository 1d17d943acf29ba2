// SPDX-License-Identifier: Apache-2.0
#include "client/cli/report.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "attnbias/error.h"
#include "attnbias/internal/printable.h"
#include "attnbias/v1/options.pb.h"
#include "client/cli/spec_fields.h"
#include "proto/grpc_versions.h"

namespace attnbias {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using OrderedJson = nlohmann::ordered_json;

constexpr int kIndent = 1;

// Makes every string of `message`, and of the messages in it, printable.
void MakePrintable(Message* message) {
  const Reflection* reflection = message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    const bool is_list = field->is_repeated();
    const int count = is_list ? reflection->FieldSize(*message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->message_type() != nullptr) {
        MakePrintable(is_list ? reflection->MutableRepeatedMessage(message, field, i)
                              : reflection->MutableMessage(message, field));
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        const std::string text =
            internal::Printable(is_list ? reflection->GetRepeatedString(*message, field, i)
                                        : reflection->GetString(*message, field));
        is_list ? reflection->SetRepeatedString(message, field, i, text)
                : reflection->SetString(message, field, text);
      }
    }
  }
}

// A line of the list: a field, and "required", "optional" or its default.
struct FieldRow {
  std::string name;
  std::string need;
  const FieldDescriptor* field;
};

// Returns "required", "optional" or the default. A table of biases is optional,
// since values BUCKETS need none.
std::string NeedOf(const FieldDescriptor& field) {
  const v1::FieldRule& rule = field.options().GetExtension(v1::rule);
  if (!rule.given_by().empty()) {
    return absl::StrCat("required without ", absl::StrReplaceAll(rule.given_by(), {{"|", " | "}}));
  }
  if (!rule.default_().empty()) {
    return absl::StrCat("default ", field.enum_type() == nullptr
                                        ? rule.default_()
                                        : ShortName(*field.enum_type(), rule.default_()));
  }
  const bool is_value = field.message_type() == nullptr && !field.is_repeated();
  if (is_value && field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL && !field.has_presence()) {
    return "default false";
  }
  return rule.required() || (is_value && !rule.has_default_()) ? "required" : "optional";
}

bool IsNumbers(const FieldDescriptor& field) {
  return field.message_type() == v1::DoubleList::descriptor();
}

bool IsList(const FieldDescriptor& field) { return field.is_repeated() || IsNumbers(field); }

// Returns the type of a field, or of each element of a list.
std::string KindOf(const FieldDescriptor& field) {
  if (IsNumbers(field)) return "double";
  return field.message_type() != nullptr ? "table" : std::string(field.cpp_type_name());
}

// Returns the type with its bounds, axes and the fields that it goes with.
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

std::vector<FieldRow> RowsOf(const std::vector<Argument>& arguments) {
  std::vector<FieldRow> rows;
  for (const auto& [name, field, required] : arguments) {
    if (IsNested(*field)) {
      const std::string prefix = NestedPrefix({name, field});
      for (FieldRow& row : RowsOf(ArgumentsOf(*field->message_type()))) {
        row.name = absl::StrCat(prefix, row.name);
        if (row.need == "required" && NeedOf(*field) != "required") {
          absl::StrAppend(&row.need, " with ", name);
        }
        rows.push_back(std::move(row));
      }
      continue;
    }
    rows.push_back({name, required ? "required" : NeedOf(*field), field});
    if (field->message_type() != v1::TableRef::descriptor()) continue;
    rows.push_back({absl::StrCat(name, "_layout"), "optional",
                    v1::TableRef::descriptor()->FindFieldByName("layout")});
  }
  return rows;
}

std::string FieldList(const NamedEncoding& encoding) {
  std::string text = absl::StrCat(encoding.name, "\n");
  const std::vector<FieldRow> rows = RowsOf(ArgumentsOf(encoding));
  int name_width = 0;
  int need_width = 0;
  for (const FieldRow& row : rows) {
    name_width = std::max(name_width, static_cast<int>(row.name.size()));
    need_width = std::max(need_width, static_cast<int>(row.need.size()));
  }
  for (const FieldRow& row : rows) {
    absl::StrAppendFormat(&text, "  %-*s %-*s %s\n", name_width, row.name, need_width, row.need,
                          TypeOf(*row.field));
  }
  if (encoding.preset != nullptr) {
    absl::StrAppend(&text, "  = ", EncodingText(encoding.preset->spec()), "\n");
  }
  return text;
}

// Returns a message as JSON with the contract's names.
std::string JsonOf(const Message& message, google::protobuf::util::JsonPrintOptions options = {}) {
  options.preserve_proto_field_names = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  return status.ok() ? text : status.ToString();
}

OrderedJson EncodingAsJson(const NamedEncoding& encoding) {
  OrderedJson fields = OrderedJson::array();
  for (const FieldRow& row : RowsOf(ArgumentsOf(encoding))) {
    OrderedJson field = {{"name", row.name}, {"required", row.need == "required"}};
    const auto* type = row.field->enum_type();
    if (type == nullptr) {
      field["type"] = KindOf(*row.field);
    } else {
      field["values"] = ShortNames(*type);
    }
    field["list"] = IsList(*row.field);
    field["rule"] = OrderedJson::parse(JsonOf(row.field->options().GetExtension(v1::rule)));
    fields.push_back(std::move(field));
  }
  OrderedJson json = {
      {"name", encoding.name},
      {"extent",
       absl::StrJoin(encoding.field->message_type()->options().GetRepeatedExtension(v1::extent),
                     " or ")},
      {"fields", std::move(fields)}};
  if (encoding.preset != nullptr) {
    json["preset_of"] = EncodingText(encoding.preset->spec());
  }
  return json;
}

// Returns "f32" for DATA_TYPE_F32.
std::string NameOf(v1::DataType type) {
  return ShortName(*v1::DataType_descriptor(), v1::DataType_Name(type));
}

}  // namespace

absl::StatusOr<std::vector<NamedEncoding>> EncodingsNamed(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (const auto known = EncodingNamed(name); !known.ok()) {
      return known.status();
    }
  }
  std::vector<NamedEncoding> encodings = Encodings();
  if (names.empty()) return encodings;
  std::erase_if(encodings, [&](const NamedEncoding& encoding) {
    return !absl::c_linear_search(names, encoding.name);
  });
  return encodings;
}

std::string EncodingList(const std::vector<NamedEncoding>& encodings) {
  std::string text;
  for (const NamedEncoding& encoding : encodings) text += FieldList(encoding);
  return text;
}

std::string EncodingListAsJson(const std::vector<NamedEncoding>& encodings) {
  OrderedJson list = OrderedJson::array();
  for (const NamedEncoding& encoding : encodings) {
    list.push_back(EncodingAsJson(encoding));
  }
  return OrderedJson{{"encodings", std::move(list)}}.dump(kIndent) + "\n";
}

std::string HealthAsJson(absl::string_view status) {
  return OrderedJson{{"status", std::string(status)}}.dump(kIndent) + "\n";
}

std::string TableReport(v1::TableInfo table) {
  MakePrintable(&table);
  std::string text = absl::StrCat(table.name(), "\n  ", NameOf(table.data_type()), " [",
                                  absl::StrJoin(table.shape(), ", "), "] of ", table.source(),
                                  "\n  sha256:", table.sha256(), "\n");
  if (table.has_spec()) {
    absl::StrAppend(&text, "  ", EncodingText(table.spec()), "\n");
  }
  return text;
}

std::string HeaderReport(v1::TensorHeader header) {
  MakePrintable(&header);
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

std::string DescribeReport(v1::TensorHeader header) {
  MakePrintable(&header);
  std::string text = HeaderReport(header);
  absl::StrAppend(&text, "encoding fingerprint  ", header.encoding_fingerprint(), "\ntotal  ",
                  header.total_bytes(), " bytes\n");
  for (const v1::Range& rows : header.fully_masked_rows()) {
    absl::StrAppend(&text, "fully masked queries  ", rows.begin(), ":", rows.end(), "\n");
  }
  for (const v1::DerivedValue& value : header.derived()) {
    absl::StrAppend(&text, value.name(), "  ", absl::StrJoin(value.values(), ", "), "\n");
  }
  return text;
}

std::string InfoReport(v1::GetServerInfoResponse info) {
  MakePrintable(&info);
  std::vector<std::string> types;
  for (const int type : info.data_types()) {
    types.push_back(NameOf(static_cast<v1::DataType>(type)));
  }
  std::string text = absl::StrCat(
      "version    ", info.version(), "\nbackends   ", absl::StrJoin(info.backends(), ", "),
      "\nkernels    ", absl::StrJoin(info.instruction_sets(), ", "), "\ntypes      ",
      absl::StrJoin(types, ", "), "\nencodings  ", absl::StrJoin(info.encodings(), ", "), "\n");
  const auto* limits = v1::ServerLimits::descriptor();
  for (int i = 0; i < limits->field_count(); ++i) {
    const FieldDescriptor* limit = limits->field(i);
    absl::StrAppend(&text, limit->name(), "  ",
                    info.limits().GetReflection()->GetInt64(info.limits(), limit), "\n");
  }
  return text;
}

std::string AsJson(const Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  PrintUnsetFields(&options);
  return JsonOf(message, options);
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
