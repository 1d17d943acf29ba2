// SPDX-License-Identifier: Apache-2.0
// How buckets that grow with the distance's logarithm are rounded.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_BUCKET_RULE_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_BUCKET_RULE_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "core/encoding/spec/field.h"

namespace attnbias {

enum class BucketRule : uint8_t { kExact = 1, kFloat32Log };
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<BucketRule> = {
    "EXACT", "FLOAT32_LOG"};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_BUCKET_RULE_H_
