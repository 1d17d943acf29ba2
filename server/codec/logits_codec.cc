// SPDX-License-Identifier: Apache-2.0
#include "server/codec/logits_codec.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "core/logits/term.h"
#include "google/protobuf/message.h"
#include "server/codec/field_codec.h"
#include "server/codec/spec_codec.h"

namespace attnbias {
namespace {

// Refuses a layout of any table in `message`: all have their axes in one order.
absl::Status CheckNoLayout(const google::protobuf::Message& message,
                           const std::string& path) {
  const auto* ref = dynamic_cast<const v1::TableRef*>(&message);
  if (ref != nullptr && ref->layout() != v1::TABLE_LAYOUT_UNSPECIFIED) {
    return Invalid(
        path,
        "layout: set, want it unset: these tables have only one order of axes");
  }
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->message_type() == nullptr || field->is_repeated()) continue;
    ATTNBIAS_RETURN_IF_ERROR(
        CheckNoLayout(message.GetReflection()->GetMessage(message, field),
                      absl::StrCat(path, field->name(), ".")));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LogitsSpec> DecodeLogitsSpec(const v1::LogitsSpec& wire,
                                            const TableSet& tables) {
  ATTNBIAS_RETURN_IF_ERROR(CheckNoLayout(wire, ""));
  LogitsSpec spec;
  ATTNBIAS_ASSIGN_OR_RETURN(
      spec.term,
      DecodeOneof(wire, "term", tables, &TermRegistration::DefaultSpec));
  ATTNBIAS_RETURN_IF_ERROR(DecodeFields(wire, "", tables, spec.Fields()));
  ATTNBIAS_RETURN_IF_ERROR(DecodeFill(wire, "", &spec.fill));
  return spec;
}

v1::LogitsHeader EncodeLogitsHeader(const LogitsPlan& plan) {
  v1::LogitsHeader header;
  header.set_num_heads(plan.spec().num_heads);
  header.set_width(plan.output_width());
  header.set_data_type(static_cast<v1::DataType>(plan.spec().output_data_type));
  header.set_query_offset(plan.query_offset());
  header.set_work_data_type(static_cast<v1::DataType>(plan.work_type()));
  header.set_roundings(plan.roundings());
  return header;
}

}  // namespace attnbias
