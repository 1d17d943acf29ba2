// SPDX-License-Identifier: Apache-2.0
#include "core/tensor/data_type.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace attnbias {
namespace {

template <typename T>
T Load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

double HalfToDouble(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const int fraction = bits & 0x3ff;
  double magnitude = 0;
  if (exponent == 0x1f) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, -24);
  } else {
    magnitude = std::ldexp(fraction + 1024, exponent - 25);
  }
  return std::copysign(magnitude, (bits & 0x8000) != 0 ? -1.0 : 1.0);
}

}  // namespace

double ReadElement(DataType type, const std::byte* data) {
  switch (type) {
    case DataType::kF64:
      return Load<double>(data);
    case DataType::kF32:
      return Load<float>(data);
    case DataType::kF16:
      return HalfToDouble(Load<uint16_t>(data));
    case DataType::kBF16:
      return std::bit_cast<float>(uint32_t{Load<uint16_t>(data)} << 16);
    case DataType::kI32:
      return Load<int32_t>(data);
  }
  return 0;
}

double LowestOf(DataType type) {
  switch (type) {
    case DataType::kF64:
      return std::numeric_limits<double>::lowest();
    case DataType::kF32:
      return std::numeric_limits<float>::lowest();
    case DataType::kF16:
      return -65504;
    case DataType::kBF16:
      return std::bit_cast<float>(uint32_t{0xff7f0000});
    case DataType::kI32:
      return std::numeric_limits<int32_t>::lowest();
  }
  return 0;
}

void RepeatElement(DataType type, const std::byte* value, int64_t count, std::byte* out) {
  WithBitsOf(type, [=]<typename Bits>(Bits /*zero*/) {
    std::fill_n(reinterpret_cast<Bits*>(out), count, Load<Bits>(value));
  });
}

}  // namespace attnbias
