// SPDX-License-Identifier: Apache-2.0
#include "client/cli/tensor_options.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cli/spec_fields.h"

namespace attnbias {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Returns the message of `spec` that has the field, null if there is none.
Message* OwnerOf(const std::string& field, const FieldDescriptor& extent,
                 v1::TensorSpec* spec) {
  if (v1::Mask::descriptor()->FindFieldByName(field) != nullptr) {
    return spec->mutable_output()->mutable_mask();
  }
  if (v1::Output::descriptor()->FindFieldByName(field) != nullptr) {
    return spec->mutable_output();
  }
  return extent.message_type()->FindFieldByName(field) == nullptr
             ? nullptr
             : spec->GetReflection()->MutableMessage(spec, &extent);
}

absl::Status SetFlag(const std::string& name, const std::string& value,
                     const std::string& encoding, v1::TensorSpec* spec) {
  const FieldDescriptor& extent =
      *spec->GetDescriptor()->FindFieldByName(ExtentOf(*spec));
  Message* owner = OwnerOf(name, extent, spec);
  if (owner == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(FlagOf(name), ": got a value, want none: the extent of ",
                     encoding, " is ", extent.name()));
  }
  const FieldDescriptor& field = *owner->GetDescriptor()->FindFieldByName(name);
  if (const FieldDescriptor* other = RivalOf(field, *owner)) {
    return absl::InvalidArgumentError(
        absl::StrCat(FlagOf(name), ": got it beside ", FlagOf(other->name()),
                     ", want one of the two"));
  }
  const absl::Status status = SetField(name, value, owner);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(FlagOf(name), status.message().substr(name.size())));
}

}  // namespace

std::string FlagOf(absl::string_view field) {
  return absl::StrCat("--", absl::StrReplaceAll(field, {{"_", "-"}}));
}

absl::StatusOr<v1::TensorSpec> BuildSpec(const TensorOptions& options) {
  v1::TensorSpec spec;
  absl::Status status = SetEncoding(options.encoding, options.fields, &spec);
  for (const auto& [name, values] : options.flags) {
    for (const std::string& value : values) {
      if (!status.ok()) return status;
      status = SetFlag(name, value, options.encoding, &spec);
    }
  }
  if (!status.ok()) return status;
  const v1::Mask& mask = spec.output().mask();
  if (mask.fill_case() != v1::Mask::FILL_NOT_SET && !mask.causal() &&
      !mask.has_window_left() && !mask.has_window_right()) {
    return absl::InvalidArgumentError(
        "--fill-value and --fill-lowest need a mask: --causal, --window-left "
        "or --window-right");
  }
  return spec;
}

}  // namespace attnbias
