// SPDX-License-Identifier: Apache-2.0
#include "core/numerics/rounding.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "core/numerics/narrow.h"

namespace attnbias {
namespace {

// Rounds hi + lo to odd: if the sum is inexact, to the neighboring double whose last bit is set, so
// that a later rounding to fewer bits gives the same result as rounding the exact sum.
double RoundToOdd(DoubleDouble sum) {
  if (sum.lo == 0) return sum.hi;
  const uint64_t bits = std::bit_cast<uint64_t>(sum.hi);
  if ((bits & 1) != 0) return sum.hi;
  const bool away_from_zero = (sum.lo > 0) == (sum.hi > 0);
  return std::bit_cast<double>(away_from_zero ? bits + 1 : bits - 1);
}

// Returns the bits of hi + lo, a sum returned by TwoSum, rounded to `type`.
uint64_t RoundedBits(DoubleDouble sum, DataType type) {
  switch (type) {
    case DataType::kF64:
      return std::bit_cast<uint64_t>(sum.hi);
    case DataType::kF32:
      return Narrow(RoundToOdd(sum), kBinary32);
    case DataType::kF16:
      return Narrow(RoundToOdd(sum), kBinary16);
    case DataType::kBF16:
      return Narrow(RoundToOdd(sum), kBfloat16);
    case DataType::kI32:
      break;
  }
  return 0;
}

void StoreBits(uint64_t bits, DataType type, std::byte* out) {
  WithBitsOf(type, [=]<typename Bits>(Bits /*zero*/) {
    const auto narrow = static_cast<Bits>(bits);
    std::memcpy(out, &narrow, sizeof(narrow));
  });
}

}  // namespace

void RoundDouble(double value, DataType type, std::byte* out) {
  StoreBits(RoundedBits({value, 0}, type), type, out);
}

void RoundSum(DoubleDouble value, DataType type, std::byte* out) {
  StoreBits(RoundedBits(TwoSum(value.hi, value.lo), type), type, out);
}

void RoundProduct(double a, double b, DataType type, std::byte* out) {
  DoubleDouble product = {a * b, 0};
  // Outside this range the error term may not be representable, but a narrow result is zero or
  // infinite however the product is rounded.
  if (std::fabs(product.hi) > 0x1p-200 && std::fabs(product.hi) < 0x1p1000) {
    product.lo = std::fma(a, b, -product.hi);
  }
  StoreBits(RoundedBits(product, type), type, out);
}

bool TryRound(DoubleDouble value, double bound, DataType type, std::byte* out) {
  const double reach = OutwardReach(value, bound);
  const uint64_t bits = RoundedBits(TwoSum(value.hi, value.lo + reach), type);
  if (bits != RoundedBits(TwoSum(value.hi, value.lo - reach), type)) {
    return false;
  }
  StoreBits(bits, type, out);
  return true;
}

}  // namespace attnbias
