// SPDX-License-Identifier: Apache-2.0
#include "client/cli/presets.h"

#include <google/protobuf/text_format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "attnbias/v1/options.pb.h"
#include "client/cli/presets_text.h"

namespace attnbias {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Returns whether a value of an enum is one that needs or takes a field.
bool Uses(const EnumValueDescriptor& value, const FieldDescriptor& field) {
  const auto& needs = value.options().GetRepeatedExtension(v1::needs);
  const auto& takes = value.options().GetRepeatedExtension(v1::takes);
  const std::string names =
      absl::StrCat(absl::StrJoin(needs, "|"), "|", absl::StrJoin(takes, "|"));
  const std::vector<std::string> all = absl::StrSplit(names, '|');
  return absl::c_linear_search(all, field.name());
}

// Returns whether the rule not_with of a field leaves it no meaning.
bool IsExcluded(const FieldDescriptor& field, const Message& encoding) {
  const auto* other = field.containing_type()->FindFieldByName(
      field.options().GetExtension(v1::rule).not_with());
  return other != nullptr && !other->is_repeated() &&
         encoding.GetReflection()->HasField(encoding, other);
}

}  // namespace

const presets::Presets& Presets() {
  static const auto& all = *[] {
    auto* presets = new presets::Presets;
    if (!google::protobuf::TextFormat::ParseFromString(kPresetsText, presets)) {
      std::abort();
    }
    return presets;
  }();
  return all;
}

bool IsDecided(const FieldDescriptor& field, const Message& constants) {
  std::vector<const FieldDescriptor*> given;
  constants.GetReflection()->ListFields(constants, &given);
  return absl::c_linear_search(given, &field) || IsExcluded(field, constants) ||
         absl::c_any_of(given, [&](const FieldDescriptor* by) {
           if (by->enum_type() == nullptr) return false;
           bool is_used = false;
           for (int i = 0; i < by->enum_type()->value_count(); ++i) {
             is_used |= Uses(*by->enum_type()->value(i), field);
           }
           return is_used &&
                  !Uses(*constants.GetReflection()->GetEnum(constants, by),
                        field);
         });
}

void ClearIdleFields(const presets::Preset& preset, Message* encoding) {
  for (const auto& argument : preset.arguments()) {
    for (const std::string& name : argument.fields()) {
      const auto* field = encoding->GetDescriptor()->FindFieldByName(name);
      if (!IsExcluded(*field, *encoding)) continue;
      encoding->GetReflection()->ClearField(encoding, field);
    }
  }
}

}  // namespace attnbias
