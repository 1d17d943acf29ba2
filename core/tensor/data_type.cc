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
  // F32's exponent has three more bits than F16's, and its bias is greater by 112.
  const uint32_t magnitude = (bits & 0x7FFFu) << 13;
  const bool is_finite = (bits & 0x7C00) != 0x7C00;
  const float value = is_finite ? std::bit_cast<float>(magnitude) * 0x1p112f
                                : std::bit_cast<float>(magnitude | 0x7F800000);
  return std::copysign(value, (bits & 0x8000) != 0 ? -1.0F : 1.0F);
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
  static constexpr double kLowest[] = {std::numeric_limits<double>::lowest(),
                                       std::numeric_limits<float>::lowest(), -65504, -0x1.FEp127,
                                       std::numeric_limits<int32_t>::lowest()};
  return kLowest[static_cast<size_t>(type) - 1];
}

void Repeat(const std::byte* value, int64_t size, int64_t count, std::byte* out) {
  if (count <= 0) return;
  std::memmove(out, value, size);
  for (int64_t done = 1; done < count;) {
    const int64_t now = std::min(done, count - done);
    std::memcpy(out + done * size, out, now * size);
    done += now;
  }
}

}  // namespace attnbias
