// SPDX-License-Identifier: Apache-2.0
#include "server/codec/encoding_codec.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/encoding/make_encoding.h"
#include "google/protobuf/descriptor.h"
#include "server/codec/field_codec.h"

namespace attnbias {
namespace {

const google::protobuf::OneofDescriptor& Encodings() {
  return *v1::TensorSpec::descriptor()->FindOneofByName("encoding");
}

// "sinusoidal, t5, alibi"
std::string NamesInContract() {
  std::string names;
  for (int i = 0; i < Encodings().field_count(); ++i) {
    absl::StrAppend(&names, i == 0 ? "" : ", ", Encodings().field(i)->name());
  }
  return names;
}

}  // namespace

absl::StatusOr<EncodingSpec> DecodeEncoding(const v1::TensorSpec& spec,
                                            const TableSet& tables) {
  const auto* field =
      spec.GetReflection()->GetOneofFieldDescriptor(spec, &Encodings());
  if (field == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("encoding: not set, want one of ", NamesInContract()));
  }
  EncodingSpec decoded = *DefaultSpec(field->name());
  ATTNBIAS_RETURN_IF_ERROR(
      DecodeFields(spec.GetReflection()->GetMessage(spec, field), field->name(),
                   tables, decoded.Fields()));
  return decoded;
}

void EncodeEncoding(EncodingSpec spec, v1::TensorSpec* out) {
  const auto* field =
      out->GetDescriptor()->FindFieldByName(std::string(spec.name()));
  EncodeFields(spec.Fields(), out->GetReflection()->MutableMessage(out, field));
}

}  // namespace attnbias
