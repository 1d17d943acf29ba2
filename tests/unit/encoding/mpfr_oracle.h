// SPDX-License-Identifier: Apache-2.0
// An oracle for roundings: MPFR's own emulation of IEEE formats, independent of the code under
// test.
#pragma once

#include <mpfr.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/tensor/data_type.h"

namespace attnbias {

inline constexpr DataType kFloatTypes[] = {DataType::kF64, DataType::kF32, DataType::kF16,
                                           DataType::kBF16};

// One MPFR number with enough bits for every test.
class Number {
 public:
  explicit Number(int precision = 600) { mpfr_init2(value_, precision); }
  Number(const Number&) = delete;
  Number& operator=(const Number&) = delete;
  ~Number() { mpfr_clear(value_); }
  operator mpfr_ptr() { return value_; }  // NOLINT: like MPFR's own array type

 private:
  mpfr_t value_;
};

// Returns `value` rounded to the format of `type`, as a double.
inline double RoundedBy(mpfr_ptr value, DataType type) {
  struct Format {
    int precision, least_exponent, most_exponent;
  };
  const Format format = type == DataType::kF64   ? Format{53, -1073, 1024}
                        : type == DataType::kF32 ? Format{24, -148, 128}
                        : type == DataType::kF16 ? Format{11, -23, 16}
                                                 : Format{8, -132, 128};
  const mpfr_exp_t old_least = mpfr_get_emin();
  const mpfr_exp_t old_most = mpfr_get_emax();
  mpfr_set_emin(format.least_exponent);
  mpfr_set_emax(format.most_exponent);
  Number rounded(format.precision);
  int inexact = mpfr_set(rounded, value, MPFR_RNDN);
  inexact = mpfr_check_range(rounded, inexact, MPFR_RNDN);
  mpfr_subnormalize(rounded, inexact, MPFR_RNDN);
  const double result = mpfr_get_d(rounded, MPFR_RNDN);
  mpfr_set_emin(old_least);
  mpfr_set_emax(old_most);
  return result;
}

// Returns the element with these bits, in a format with these field widths, as a double.
inline double Decoded(uint64_t bits, int mantissa_bits, int exponent_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits & ((1u << exponent_bits) - 1));
  const double mantissa = static_cast<double>(bits & ((uint64_t{1} << mantissa_bits) - 1));
  const double sign = bits >> (mantissa_bits + exponent_bits) ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * INFINITY : NAN;
  }
  const double significand = exponent == 0 ? mantissa : mantissa + std::ldexp(1.0, mantissa_bits);
  return sign * std::ldexp(significand, std::max(exponent, 1) - bias - mantissa_bits);
}

inline double ElementAt(DataType type, const void* data, int64_t index = 0) {
  const auto* bytes = static_cast<const char*>(data) + index * SizeOf(type);
  uint64_t bits = 0;
  std::memcpy(&bits, bytes, SizeOf(type));
  switch (type) {
    case DataType::kF32:
      return Decoded(bits, 23, 8);
    case DataType::kF16:
      return Decoded(bits, 10, 5);
    case DataType::kBF16:
      return Decoded(bits, 7, 8);
    default: {
      double value;
      std::memcpy(&value, &bits, sizeof(value));
      return value;
    }
  }
}

// Returns true if both are equal, including the signs of zeros.
inline bool Same(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

}  // namespace attnbias
