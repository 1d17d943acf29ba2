// SPDX-License-Identifier: Apache-2.0
#include "client/cli/presets.h"

#include <google/protobuf/text_format.h>

#include <cstdlib>

#include "client/cli/presets_text.h"

namespace attnbias {

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

}  // namespace attnbias
