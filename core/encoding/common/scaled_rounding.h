// SPDX-License-Identifier: Apache-2.0
// Rounds a scale times a value with a known error bound.
#pragma once

#include <cmath>
#include <cstddef>

#include "core/numerics/double_double.h"
#include "core/numerics/real.h"
#include "core/tensor/data_type.h"

namespace attnbias {

class ScaledRounding {
 public:
  // Minimum error, relative to the value, that TryRound accepts.
  static constexpr double kLeastError = 0x1p-100;

  // `scale` is not 0 and has more bits than a double-double.
  ScaledRounding(const Real& scale, DataType type);
  ScaledRounding(double scale, DataType type);

  bool is_unscaled() const { return is_one_; }
  // The scale. Its magnitude is in [2^-300, 2^300].
  DoubleDouble factor() const { return factor_; }

  // Writes the one number to which the scale times every real within `error` of `value` rounds, and
  // returns true. Writes nothing and returns false if there are several. The magnitude of `value`
  // is 0 or in [2^-550, 2^550], its error at least a relative kLeastError.
  [[nodiscard]] bool TryRound(DoubleDouble value, double error, std::byte* out) const;
  // The same with an error relative to `value`. Returns false for an error of at least 1.
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
