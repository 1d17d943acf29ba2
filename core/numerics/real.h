// SPDX-License-Identifier: Apache-2.0
// Owns one MPFR number. Arithmetic is MPFR's own, on get().
#pragma once

#include <mpfr.h>

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "core/numerics/double_double.h"
#include "core/tensor/data_type.h"

namespace attnbias {

class Real {
 public:
  // NaN until it is set.
  explicit Real(int precision_bits) { mpfr_init2(value_, precision_bits); }
  Real(double value, int precision_bits) : Real(precision_bits) {
    mpfr_set_d(value_, value, MPFR_RNDN);
  }
  Real(Real&& other) noexcept : Real(MPFR_PREC_MIN) {
    mpfr_swap(value_, other.value_);
  }
  Real& operator=(Real&& other) noexcept {
    mpfr_swap(value_, other.value_);
    return *this;
  }
  ~Real() { mpfr_clear(value_); }

  // Bounds what one takes, with the words that MPFR and malloc add.
  static constexpr int64_t BytesOf(int precision_bits) {
    return int64_t{sizeof(mpfr_t)} + 32 + precision_bits / 8;
  }

  int precision() const { return static_cast<int>(mpfr_get_prec(value_)); }
  mpfr_ptr get() { return value_; }
  mpfr_srcptr get() const { return value_; }

 private:
  mpfr_t value_;
};

// MPFR keeps constants such as pi per thread. Whoever computes on a thread that
// is not its own gives them back by holding one of these.
class RealCacheScope {
 public:
  RealCacheScope() = default;
  RealCacheScope(const RealCacheScope&) = delete;
  RealCacheScope& operator=(const RealCacheScope&) = delete;
  ~RealCacheScope() { mpfr_free_cache2(MPFR_FREE_LOCAL_CACHE); }
};

// Writes the exact `value` rounded to `type`, as RoundDouble does.
void RoundReal(const Real& value, DataType type, std::byte* out);

// Writes the number that every real within `bound` of `value` rounds to and
// returns true; false, having written nothing, where there is more than one.
[[nodiscard]] bool TryRound(const Real& value, const Real& bound, DataType type,
                            std::byte* out);

// Writes the number that a real rounds to of which `evaluate` sets a value and
// a bound of its error, at 192 bits and ever more until they decide. A real
// that 4096 bits do not tell from a tie is taken for one, so that this ends.
void RoundByRefining(absl::FunctionRef<void(Real& value, Real& bound)> evaluate,
                     DataType type, std::byte* out);

// Sets `bound` to what 2^log2_count roundings of `value` to its precision may
// lose.
void SetRoundingBound(const Real& value, int log2_count, Real& bound);

// The nearest sum of two doubles, within 2^-106 of a value whose magnitude is
// in [2^-900, 2^900].
DoubleDouble ToDoubleDouble(const Real& value);

}  // namespace attnbias
