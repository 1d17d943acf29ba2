// SPDX-License-Identifier: Apache-2.0
// KERPLE: what can be asked for.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_KERPLE_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_KERPLE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/encoding/spec/field.h"
#include "core/encoding/spec/limits.h"

namespace attnbias {

enum class KerpleKernel : uint8_t { kLog = 1, kPower };
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<KerpleKernel> = {
    "LOG", "POWER"};

struct KerpleSpec {
  static constexpr std::string_view kName = "kerple";
  std::optional<KerpleKernel> kernel;
  std::vector<double> p;
  std::vector<double> a;
  int64_t num_heads = 0;

  // Heads that are not set are those of a list that is not for all heads.
  void Derive() {
    const size_t count = std::max(p.size(), a.size());
    if (num_heads == 0 && count > 1) num_heads = static_cast<int64_t>(count);
  }

  FieldList Fields() {
    // Far beyond what is ever learned, near enough for double-doubles.
    constexpr double kLeastParameter = 1e-30;
    constexpr double kMostParameter = 1e30;
    constexpr double kMostPower = 2;
    const bool is_power = kernel == KerpleKernel::kPower;
    return {Field(1, "kernel", kernel).Required(),
            Field(2, "p", p).In(kLeastParameter,
                                is_power ? kMostPower : kMostParameter),
            Field(3, "a", a).In(kLeastParameter, kMostParameter),
            Field(4, "num_heads", num_heads).In(1, kMaxNumHeads)};
  }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_KERPLE_H_
