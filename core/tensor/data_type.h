// SPDX-License-Identifier: Apache-2.0
// Tensor element types, their names, and conversion of single elements to doubles.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace attnbias {

// The values are those of the wire format's DataType and are part of fingerprints, so they never
// change.
enum class DataType : uint8_t { kF64 = 1, kF32, kF16, kBF16, kI32 };

constexpr int64_t SizeOf(DataType type) {
  constexpr int64_t kSizes[] = {8, 4, 2, 2, 4};
  return kSizes[static_cast<size_t>(type) - 1];
}

inline constexpr std::array<std::string_view, 5> kDataTypeNames = {"F64", "F32", "F16", "BF16",
                                                                   "I32"};

constexpr std::string_view NameOf(DataType type) {
  return kDataTypeNames[static_cast<size_t>(type) - 1];
}

// Calls `use` with a 0 of the unsigned type that has the size of an element.
template <typename Use>
void WithBitsOf(DataType type, const Use& use) {
  switch (SizeOf(type)) {
    case 2:
      return use(uint16_t{0});
    case 4:
      return use(uint32_t{0});
    default:
      return use(uint64_t{0});
  }
}

// Returns the element at `data`, at any alignment; exact for every type.
double ReadElement(DataType type, const std::byte* data);

// Returns the lowest finite value of a type.
double LowestOf(DataType type);

// Writes `count` copies of the `size` bytes at `value` to `out`. `value` may be `out`.
void Repeat(const std::byte* value, int64_t size, int64_t count, std::byte* out);

}  // namespace attnbias
