// SPDX-License-Identifier: Apache-2.0
// Sinusoidal positions at 600 bits, straight from the formula.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "attnbias/v1/encodings.pb.h"
#include "tests/unit/encoding/mpfr_oracle.h"

namespace attnbias {

// Orders of columns with the frequencies that models have in them.
enum class SinusoidLayout { kInterleaved, kSinesCosines, kTensor2Tensor };

// A sinusoidal table of one axis.
struct SinusoidTable {
  int64_t dim = 0;
  double base = 10000;
  SinusoidLayout layout = SinusoidLayout::kInterleaved;
  double min_timescale = 1;
  double max_timescale = 10000;
};

inline v1::Sinusoidal MessageOf(const SinusoidTable& table) {
  v1::Sinusoidal message;
  message.set_dim(static_cast<int>(table.dim));
  v1::Ladder& ladder = *message.mutable_ladder();
  if (table.layout != SinusoidLayout::kInterleaved) {
    message.set_columns(v1::COLUMNS_SINES_COSINES);
  }
  if (table.layout == SinusoidLayout::kTensor2Tensor) {
    message.set_odd(v1::ODD_COLUMN_ZERO);
    ladder.mutable_timescales()->set_min(table.min_timescale);
    ladder.mutable_timescales()->set_max(table.max_timescale);
  } else {
    ladder.set_base(table.base);
  }
  return message;
}

// Sets `x` to (position + offset) scale / (length + eps).
inline void SetStretched(const v1::Axis& axis, double position, mpfr_ptr x) {
  Number length(static_cast<int>(mpfr_get_prec(x)));
  mpfr_set_d(x, axis.offset(), MPFR_RNDN);
  mpfr_add_d(x, x, position, MPFR_RNDN);
  mpfr_mul_d(x, x, axis.scale(), MPFR_RNDN);
  mpfr_set_d(length, axis.length(), MPFR_RNDN);
  mpfr_add_d(length, length, axis.eps(), MPFR_RNDN);
  mpfr_div(x, x, length, MPFR_RNDN);
}

class SinusoidalOracle {
 public:
  explicit SinusoidalOracle(const SinusoidTable& spec) : spec_(spec) {}

  // Sets `value` to the element at (position, column).
  void Set(int64_t position, int64_t column, mpfr_ptr value) {
    Number real;
    mpfr_set_si(real, position, MPFR_RNDN);
    Set(real, column, value);
  }
  void Set(mpfr_ptr position, int64_t column, mpfr_ptr value) {
    const bool t2t = spec_.layout == SinusoidLayout::kTensor2Tensor;
    const bool interleaved = spec_.layout == SinusoidLayout::kInterleaved;
    const int64_t sines = t2t ? spec_.dim / 2 : (spec_.dim + 1) / 2;
    if (t2t && column == 2 * sines) {
      mpfr_set_ui(value, 0, MPFR_RNDN);
      return;
    }
    const bool is_sine = interleaved ? column % 2 == 0 : column < sines;
    const int64_t pair = interleaved ? column / 2 : column % sines;
    mpfr_mul(value, Frequency(pair), position, MPFR_RNDN);
    is_sine ? mpfr_sin(value, value, MPFR_RNDN)
            : mpfr_cos(value, value, MPFR_RNDN);
  }

  double Rounded(int64_t position, int64_t column, DataType type,
                 double scale = 1) {
    Number real;
    mpfr_set_si(real, position, MPFR_RNDN);
    return Rounded(real, column, type, scale);
  }
  double Rounded(mpfr_ptr position, int64_t column, DataType type,
                 double scale = 1) {
    Set(position, column, value_);
    mpfr_mul_d(value_, value_, scale, MPFR_RNDN);
    // The real number 0 has no sign.
    if (mpfr_zero_p(static_cast<mpfr_ptr>(value_)) != 0) return 0;
    return RoundedBy(value_, type);
  }

  // Radians a position.
  mpfr_ptr Frequency(int64_t pair) {
    Number& frequency = frequencies_[pair];
    if (mpfr_nan_p(static_cast<mpfr_ptr>(frequency)) == 0) return frequency;
    Number exponent;
    if (spec_.layout == SinusoidLayout::kTensor2Tensor) {
      const int64_t steps = std::max<int64_t>(spec_.dim / 2 - 1, 1);
      mpfr_set_d(frequency, spec_.max_timescale, MPFR_RNDN);
      mpfr_div_d(frequency, frequency, spec_.min_timescale, MPFR_RNDN);
      mpfr_log(frequency, frequency, MPFR_RNDN);
      mpfr_mul_si(frequency, frequency, -pair, MPFR_RNDN);
      mpfr_div_si(frequency, frequency, steps, MPFR_RNDN);
      mpfr_exp(frequency, frequency, MPFR_RNDN);
      mpfr_mul_d(frequency, frequency, spec_.min_timescale, MPFR_RNDN);
    } else {
      mpfr_set_d(frequency, spec_.base, MPFR_RNDN);
      mpfr_log(frequency, frequency, MPFR_RNDN);
      mpfr_mul_si(frequency, frequency, -2 * pair, MPFR_RNDN);
      mpfr_div_si(frequency, frequency, spec_.dim, MPFR_RNDN);
      mpfr_exp(frequency, frequency, MPFR_RNDN);
    }
    return frequency;
  }

 private:
  const SinusoidTable spec_;
  std::map<int64_t, Number> frequencies_;
  Number value_;
};

}  // namespace attnbias
