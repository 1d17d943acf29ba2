// SPDX-License-Identifier: Apache-2.0
// Enums have the same numbers in core and on the wire, where 0 is "not said".
#ifndef ATTNBIAS_SERVER_CODEC_ENUMS_H_
#define ATTNBIAS_SERVER_CODEC_ENUMS_H_

#include <optional>

namespace attnbias {

// `wire` has passed CheckKnown.
template <typename Core, typename Wire>
Core EnumOr(Wire wire, Core default_value) {
  return wire == 0 ? default_value : static_cast<Core>(wire);
}

template <typename Core, typename Wire>
std::optional<Core> OptionalEnum(Wire wire) {
  if (wire == 0) return std::nullopt;
  return static_cast<Core>(wire);
}

// Whether two enumerators have one number.
template <typename Core, typename Wire>
constexpr bool SameNumber(Core core, Wire wire) {
  return static_cast<int>(core) == static_cast<int>(wire);
}

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_CODEC_ENUMS_H_
