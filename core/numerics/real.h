// SPDX-License-Identifier: Apache-2.0
// A class that owns an MPFR number, and functions that round such numbers.
#pragma once

#include <mpfr.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "absl/functional/function_ref.h"
#include "core/numerics/double_double.h"
#include "core/tensor/data_type.h"

namespace attnbias {

template <typename Number>
concept Arithmetic = std::is_arithmetic_v<Number>;

// Operators and functions round to nearest, at the precision of their first Real operand. For other
// functions, call MPFR's on get().
class Real {
 public:
  // NaN until it is set.
  explicit Real(int precision_bits) {
    static thread_local const CacheOwner owner;
    mpfr_init2(value_, precision_bits);
  }
  template <Arithmetic Number>
  Real(Number value, int precision_bits) : Real(precision_bits) {
    if constexpr (std::is_integral_v<Number>) {
      mpfr_set_si(value_, value, MPFR_RNDN);
    } else {
      mpfr_set_d(value_, value, MPFR_RNDN);
    }
  }
  Real(const Real& other) : Real(other.precision()) { mpfr_set(value_, other.value_, MPFR_RNDN); }
  Real(Real&& other) noexcept : Real(MPFR_PREC_MIN) { mpfr_swap(value_, other.value_); }
  Real& operator=(Real other) noexcept {
    mpfr_swap(value_, other.value_);
    return *this;
  }
  ~Real() { mpfr_clear(value_); }

  // Returns the maximum size of a Real in bytes, including the overhead of MPFR and malloc.
  static constexpr int64_t BytesOf(int precision_bits) {
    return int64_t{sizeof(mpfr_t)} + 32 + precision_bits / 8;
  }

  int precision() const { return static_cast<int>(mpfr_get_prec(value_)); }
  mpfr_ptr get() { return value_; }
  mpfr_srcptr get() const { return value_; }
  double ToDouble() const { return mpfr_get_d(value_, MPFR_RNDN); }
  bool is_zero() const { return mpfr_zero_p(value_) != 0; }

  Real& operator+=(const Real& b) { return Set(mpfr_add, value_, b.value_); }
  Real& operator-=(const Real& b) { return Set(mpfr_sub, value_, b.value_); }
  Real& operator*=(const Real& b) { return Set(mpfr_mul, value_, b.value_); }
  Real& operator/=(const Real& b) { return Set(mpfr_div, value_, b.value_); }
  Real& operator+=(Arithmetic auto b) {
    return Set(OfType<decltype(b)>(mpfr_add_si, mpfr_add_d), value_, b);
  }
  Real& operator-=(Arithmetic auto b) {
    return Set(OfType<decltype(b)>(mpfr_sub_si, mpfr_sub_d), value_, b);
  }
  Real& operator*=(Arithmetic auto b) {
    return Set(OfType<decltype(b)>(mpfr_mul_si, mpfr_mul_d), value_, b);
  }
  Real& operator/=(Arithmetic auto b) {
    return Set(OfType<decltype(b)>(mpfr_div_si, mpfr_div_d), value_, b);
  }
  friend Real operator+(Real a, const auto& b) { return std::move(a += b); }
  friend Real operator-(Real a, const auto& b) { return std::move(a -= b); }
  friend Real operator*(Real a, const auto& b) { return std::move(a *= b); }
  friend Real operator/(Real a, const auto& b) { return std::move(a /= b); }
  friend Real operator-(Arithmetic auto a, Real b) {
    b.Set(OfType<decltype(a)>(mpfr_si_sub, mpfr_d_sub), a, b.value_);
    return b;
  }
  friend Real operator/(Arithmetic auto a, Real b) {
    b.Set(OfType<decltype(a)>(mpfr_si_div, mpfr_d_div), a, b.value_);
    return b;
  }

  friend Real Log(Real x) { return std::move(x.Set(mpfr_log, x.value_)); }
  friend Real Exp(Real x) { return std::move(x.Set(mpfr_exp, x.value_)); }
  friend Real Sqrt(Real x) { return std::move(x.Set(mpfr_sqrt, x.value_)); }
  friend Real Pow(Real x, const Real& exponent) {
    return std::move(x.Set(mpfr_pow, x.value_, exponent.value_));
  }

 private:
  // When a thread ends, frees the constants, such as pi, that MPFR has cached for it.
  struct CacheOwner {
    ~CacheOwner() { mpfr_free_cache2(MPFR_FREE_LOCAL_CACHE); }
  };

  template <typename Number>
  static constexpr auto OfType(auto integers, auto doubles) {
    if constexpr (std::is_integral_v<Number>) {
      return integers;
    } else {
      return doubles;
    }
  }

  Real& Set(auto function, const auto&... operands) {
    function(value_, operands..., MPFR_RNDN);
    return *this;
  }

  mpfr_t value_;
};

Real TwoPi(int precision_bits);

// Writes the exact `value` rounded to `type`, as RoundDouble does.
void RoundReal(const Real& value, DataType type, std::byte* out);

// Writes the one number to which every real within `bound` of `value` rounds, and returns true.
// Writes nothing and returns false if several are possible.
[[nodiscard]] bool TryRound(const Real& value, const Real& bound, DataType type, std::byte* out);

// Writes the number to which a real rounds. `evaluate` sets the real's value and a bound on the
// error, first at 192 bits, and then with the precision doubled until the rounding is decided. A
// real that 4096 bits do not distinguish from a tie counts as a tie, so that evaluation terminates.
void RoundByRefining(absl::FunctionRef<void(Real& value, Real& bound)> evaluate, DataType type,
                     std::byte* out);

// Sets `bound` to the error of 2^log2_count roundings of `value` to its precision.
void SetRoundingBound(const Real& value, int log2_count, Real& bound);

// Returns the nearest sum of two doubles, to within a relative error of 2^-106. `value` must have
// at least 53 bits and a magnitude in [2^-900, 2^900].
DoubleDouble ToDoubleDouble(const Real& value);

// Rounds a scale times a value whose error bound is known.
class ScaledRounding {
 public:
  // Minimum error, relative to the value, that TryRound accepts.
  static constexpr double kLeastError = 0x1p-100;

  // `scale` must not be 0 and must have more bits than a double-double.
  ScaledRounding(const Real& scale, DataType type);
  ScaledRounding(double scale, DataType type);

  bool is_unscaled() const { return is_one_; }
  // The scale. Its magnitude is in [2^-300, 2^300].
  DoubleDouble factor() const { return factor_; }

  // Writes the one number to which the scale times every real within `error` of `value` rounds, and
  // returns true. Writes nothing and returns false if several are possible. The magnitude of
  // `value` must be 0 or in [2^-550, 2^550], and its relative error at least kLeastError.
  [[nodiscard]] bool TryRound(DoubleDouble value, double error, std::byte* out) const;
  // The same, with an error relative to `value`. Returns false if the error is 1 or more.
  [[nodiscard]] bool TryRoundRelative(DoubleDouble value, double error, std::byte* out) const {
    return error < 1 && TryRound(value, error * std::fabs(value.hi), out);
  }

 private:
  Real scale_;
  DoubleDouble factor_;
  bool in_double_doubles_;
  bool is_one_;
  DataType type_;
};

}  // namespace attnbias
