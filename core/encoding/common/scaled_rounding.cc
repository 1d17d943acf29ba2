// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/common/scaled_rounding.h"

#include <cmath>
#include <cstring>

#include "core/numerics/rounding.h"

namespace attnbias {
namespace {

// Scales outside of these would leave the range of double-doubles. MPFR scales their elements, at
// more bits than elements have.
constexpr double kMinFactor = 0x1p-300;
constexpr double kMaxFactor = 0x1p300;
constexpr int kScaledPrecision = 192;

}  // namespace

ScaledRounding::ScaledRounding(const Real& scale, DataType type)
    : scale_(scale),
      factor_{scale.ToDouble(), 0},
      in_double_doubles_(std::fabs(factor_.hi) > kMinFactor && std::fabs(factor_.hi) < kMaxFactor),
      is_one_(mpfr_cmp_ui(scale.get(), 1) == 0),
      type_(type) {
  if (in_double_doubles_) factor_ = ToDoubleDouble(scale);
}

ScaledRounding::ScaledRounding(double scale, DataType type)
    : ScaledRounding(Real(scale, kScaledPrecision), type) {}

bool ScaledRounding::TryRound(DoubleDouble value, double error, std::byte* out) const {
  if (type_ == DataType::kF64 && is_one_) {
    double rounded;
    if (!TryRoundToDouble(value, error, &rounded)) return false;
    std::memcpy(out, &rounded, sizeof(rounded));
    return true;
  }
  if (in_double_doubles_) {
    // Doubling the error covers the product's own.
    return attnbias::TryRound(value * factor_, 2 * error * std::fabs(factor_.hi), type_, out);
  }
  const Real scaled = (Real(value.hi, kScaledPrecision) + value.lo) * scale_;
  Real bound(kScaledPrecision);
  mpfr_mul_d(bound.get(), scale_.get(), 2 * error, MPFR_RNDA);
  mpfr_abs(bound.get(), bound.get(), MPFR_RNDU);
  return attnbias::TryRound(scaled, bound, type_, out);
}

}  // namespace attnbias
