// SPDX-License-Identifier: Apache-2.0
#include "core/numerics/revolutions.h"

#include <gmpxx.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

namespace attnbias {
namespace {

using Limbs = std::array<uint64_t, 4>;

// Table angles are multiples of 1/256 revolution, up to an eighth of a revolution.
constexpr int kStepsPerRevolution = 256;
constexpr int kTableSize = kStepsPerRevolution / 8 + 1;

struct SinCosConstants {
  DoubleDouble two_pi;
  std::array<DoubleDouble, kTableSize> sin;
  std::array<DoubleDouble, kTableSize> cos;
  // 1 / n! for n in [0, 8).
  std::array<DoubleDouble, 8> inverse_factorial;
};

SinCosConstants MakeSinCosConstants() {
  constexpr int kPrecision = 320;
  SinCosConstants constants;
  const Real two_pi = TwoPi(kPrecision);
  constants.two_pi = ToDoubleDouble(two_pi);
  for (int i = 0; i < kTableSize; ++i) {
    Real sine(kPrecision);
    Real cosine(kPrecision);
    mpfr_sin_cos(sine.get(), cosine.get(), (two_pi * i / kStepsPerRevolution).get(), MPFR_RNDN);
    constants.sin[i] = ToDoubleDouble(sine);
    constants.cos[i] = ToDoubleDouble(cosine);
  }
  Real inverse(1, kPrecision);
  for (size_t n = 0; n < constants.inverse_factorial.size(); ++n) {
    if (n > 1) inverse /= n;
    constants.inverse_factorial[n] = ToDoubleDouble(inverse);
  }
  return constants;
}

const SinCosConstants& GetSinCosConstants() {
  static const SinCosConstants constants = MakeSinCosConstants();
  return constants;
}

// Negates modulo 2^256.
void Negate(Limbs& limbs) { mpn_neg(limbs.data(), limbs.data(), limbs.size()); }

// Returns the 64 bits starting at `bit` (counted from the least significant); bits below bit 0 and
// above the highest are zero.
template <size_t kSize>
uint64_t BitsFrom(const std::array<uint64_t, kSize>& limbs, int bit) {
  const auto limb_at = [&limbs](int limb) {
    return limb >= 0 && limb < static_cast<int>(kSize) ? limbs[limb] : uint64_t{0};
  };
  const int limb = bit >> 6;  // rounds toward minus infinity
  const int shift = bit & 63;
  if (shift == 0) return limb_at(limb);
  return (limb_at(limb) >> shift) | (limb_at(limb + 1) << (64 - shift));
}

template <size_t kSize>
int HighestBit(const std::array<uint64_t, kSize>& limbs) {
  for (int i = static_cast<int>(kSize) - 1; i >= 0; --i) {
    if (limbs[i] != 0) return 64 * i + 63 - std::countl_zero(limbs[i]);
  }
  return -1;
}

// Returns limbs * 2^-256 to within a relative error of 2^-105. Bit `highest_bit` must be set.
DoubleDouble ToRevolutions(const Limbs& limbs, int highest_bit) {
  // 53 bits, then 64, of which the conversion keeps 53.
  const int first = highest_bit - 52;
  const double hi = static_cast<double>(BitsFrom(limbs, first) & ((uint64_t{1} << 53) - 1));
  const double lo = static_cast<double>(BitsFrom(limbs, first - 64));
  const double scale = std::ldexp(1.0, first - 256);
  return FastTwoSum(hi * scale, lo * (scale * 0x1p-64));
}

// Returns the integer part of a magnitude below 2^256.
Limbs MagnitudeOf(const Real& value) {
  mpz_class integer;
  mpfr_get_z(integer.get_mpz_t(), value.get(), MPFR_RNDZ);
  Limbs limbs{};
  mpz_export(limbs.data(), nullptr, /*order=*/-1, sizeof(uint64_t),
             /*endian=*/0, /*nails=*/0, integer.get_mpz_t());
  return limbs;
}

// Returns the angle of `fraction` times 2^-(256 + shift) revolutions. `fraction` is modulo 2^256
// and has an error of `units` units in the last place. If there is a shift, the angle is below a
// quarter revolution.
ReducedAngle ReducedOf(Limbs fraction, int shift, double units) {
  ReducedAngle angle;
  if (shift == 0) {
    // Rounds to the nearest quarter revolution: adds an eighth, truncates, then subtracts it.
    const uint64_t shifted = fraction[3] + (uint64_t{1} << 61);
    angle.quarter = static_cast<int>(shifted >> 62);
    fraction[3] -= static_cast<uint64_t>(angle.quarter) << 62;
  }
  const bool negative = (fraction[3] >> 63) != 0;
  if (negative) Negate(fraction);
  const int highest_bit = HighestBit(fraction);
  angle.error = highest_bit < 0 ? std::numeric_limits<double>::infinity()
                                : std::ldexp(units, -highest_bit) + 0x1p-104;
  if (highest_bit < 0) return angle;
  angle.revolutions = ToRevolutions(fraction, highest_bit);
  angle.revolutions.hi = std::ldexp(angle.revolutions.hi, -shift);
  angle.revolutions.lo = std::ldexp(angle.revolutions.lo, -shift);
  if (negative) angle.revolutions = -angle.revolutions;
  return angle;
}

// Evaluates Taylor series around 0 for |y| <= pi / 256, truncated below 2^-110. Plain doubles
// suffice from the sixth power on.
SinCos SeriesOf(DoubleDouble y) {
  const auto& inverse = GetSinCosConstants().inverse_factorial;
  const DoubleDouble square = y * y;
  const double s = square.hi;
  const DoubleDouble sin_tail = {-s * (1.0 / 5040 - s * (1.0 / 362880 - s * (1.0 / 39916800))), 0};
  const DoubleDouble cos_tail = {s * (1.0 / 40320 - s * (1.0 / 3628800 - s * (1.0 / 479001600))),
                                 0};
  const DoubleDouble sin_factor = -inverse[3] + square * (inverse[5] + sin_tail);
  const DoubleDouble cos_factor =
      -inverse[2] + square * (inverse[4] + square * (-inverse[6] + cos_tail));
  return {y + y * (square * sin_factor), DoubleDouble{1, 0} + square * cos_factor, 0};
}

}  // namespace

FloatingRevolutions FloatingOf(const Real& revolutions) {
  const int exponent = static_cast<int>(mpfr_get_exp(revolutions.get())) - 256;
  Real scaled(revolutions.precision());
  mpfr_mul_2si(scaled.get(), revolutions.get(), -exponent, MPFR_RNDZ);
  return {.limbs = MagnitudeOf(scaled),
          .exponent = exponent,
          .is_negative = mpfr_sgn(scaled.get()) < 0};
}

std::optional<BinaryPosition> BinarySum(double a, double b) {
  constexpr double kMostCount = 0x1p62;
  const DoubleDouble sum = TwoSum(a, b);
  const double least = sum.lo != 0 ? sum.lo : sum.hi;
  if (least == 0) return BinaryPosition();
  // Both parts are multiples of the smaller one's last bit.
  int exponent = std::ilogb(least) - 52;
  const auto mantissa = static_cast<uint64_t>(std::fabs(std::ldexp(least, -exponent)));
  exponent += std::countr_zero(mantissa);
  const double count = std::ldexp(sum.hi, -exponent);
  if (!(std::fabs(count) <= kMostCount)) return std::nullopt;
  const int64_t exact =
      static_cast<int64_t>(count) + static_cast<int64_t>(std::ldexp(sum.lo, -exponent));
  if (std::abs(exact) > static_cast<int64_t>(kMostCount)) return std::nullopt;
  return BinaryPosition{.count = exact, .exponent = exponent};
}

ReducedAngle AngleOf(absl::Span<const AngleTerm> terms) {
  struct Product {
    std::array<uint64_t, 5> limbs;
    // The bit that represents one revolution.
    int point;
    int highest_bit;
  };
  std::array<Product, kMostAngleTerms> products = {};
  // Scales angles below 1/64 of a revolution by a power of two such that their sum stays below an
  // eighth.
  int shift = std::numeric_limits<int>::max();
  for (size_t i = 0; i < terms.size(); ++i) {
    const auto& [revolutions, position] = terms[i];
    Product& product = products[i];
    product.limbs.back() =
        mpn_mul_1(product.limbs.data(), revolutions.limbs.data(), revolutions.limbs.size(),
                  static_cast<uint64_t>(std::abs(position.count)));
    product.point = -(revolutions.exponent + position.exponent);
    product.highest_bit = HighestBit(product.limbs);
    shift = std::min(shift, std::max(product.point - product.highest_bit - 6, 0));
  }
  Limbs sum{};
  double units = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    const auto& [limbs, point, highest_bit] = products[i];
    Limbs fraction;
    for (int limb = 0; limb < 4; ++limb) {
      fraction[limb] = BitsFrom(limbs, point - shift - 256 + 64 * limb);
    }
    const auto& [revolutions, position] = terms[i];
    if ((position.count < 0) != revolutions.is_negative) Negate(fraction);
    mpn_add_n(sum.data(), sum.data(), fraction.data(), sum.size());
    // Error of the truncated bits, and of the revolutions themselves.
    units += 1 + std::ldexp(1.0, highest_bit + 3 - point + shift);
  }
  return ReducedOf(sum, shift, units);
}

SinCos SinCosOf(const ReducedAngle& angle) {
  const SinCosConstants& constants = GetSinCosConstants();
  const bool negative = angle.revolutions.hi < 0;
  const DoubleDouble revolutions = negative ? -angle.revolutions : angle.revolutions;
  const int step = (static_cast<int>(revolutions.hi * (2 * kStepsPerRevolution)) + 1) / 2;
  const double nearest = static_cast<double>(step) / kStepsPerRevolution;
  const DoubleDouble rest = revolutions + DoubleDouble{-nearest, 0};
  const SinCos small = SeriesOf(rest * constants.two_pi);
  DoubleDouble sine = small.sin;
  DoubleDouble cosine = small.cos;
  if (step != 0) {
    const DoubleDouble table_sin = constants.sin[step];
    const DoubleDouble table_cos = constants.cos[step];
    sine = table_sin * small.cos + table_cos * small.sin;
    cosine = table_cos * small.cos + -(table_sin * small.sin);
  }
  if (negative) sine = -sine;
  if ((angle.quarter & 1) != 0) {
    std::swap(sine, cosine);
    cosine = -cosine;
  }
  if ((angle.quarter & 2) != 0) {
    sine = -sine;
    cosine = -cosine;
  }
  return {sine, cosine, kSinCosBound + 2 * angle.error};
}

}  // namespace attnbias
