// SPDX-License-Identifier: Apache-2.0
// BEiT's relative position bias: what can be asked for.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_BEIT_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_BEIT_H_

#include <string_view>

#include "core/encoding/spec/field.h"
#include "core/encoding/spec/swin.h"

namespace attnbias {

// Swin's fields, and a table of three more rows.
struct BeitSpec : SwinSpec {
  static constexpr std::string_view kName = "beit";
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_BEIT_H_
