// SPDX-License-Identifier: Apache-2.0
// Rounds a scale times a value that is known to within an error.
#pragma once

#include <cmath>
#include <cstddef>

#include "core/numerics/double_double.h"
#include "core/numerics/real.h"
#include "core/tensor/data_type.h"

namespace attnbias {

class ScaledRounding {
 public:
  // The least error of a value that TryRound takes, relative to it.
  static constexpr double kLeastError = 0x1p-100;

  // `scale` is not 0 and has more bits than any double-double.
  ScaledRounding(const Real& scale, DataType type);
  ScaledRounding(double scale, DataType type);

  bool is_unscaled() const { return is_one_; }
  // The scale, for magnitudes in [2^-300, 2^300].
  DoubleDouble factor() const { return factor_; }

  // Writes the number that the scale times every real within `error` of `value`
  // rounds to and returns true; false, having written nothing, where there is
  // more than one. The magnitude of `value` is 0 or in [2^-550, 2^550], its
  // error at least kLeastError of it.
  [[nodiscard]] bool TryRound(DoubleDouble value, double error,
                              std::byte* out) const;
  // The same of an error relative to `value`; false from 1 on.
  [[nodiscard]] bool TryRoundRelative(DoubleDouble value, double error,
                                      std::byte* out) const {
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
