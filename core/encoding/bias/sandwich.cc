// SPDX-License-Identifier: Apache-2.0
// Sandwich (Chi et al. 2023): inner products of sinusoids, which depend only on the distance.

#include <utility>
#include <vector>

#include "core/encoding/bias/references.h"
#include "core/encoding/common/by_distance.h"
#include "core/encoding/encoding.h"
#include "core/encoding/sinusoid/sinusoid.h"
#include "core/numerics/real.h"

namespace attnbias {
namespace {

// Sets `sum` to the sum of the cosines. At precision p every angle has a relative error of 60 x
// 2^-p, and every cosine and partial sum is rounded once; `bound` covers all of these.
void SumCosines(const v1::Sandwich& spec, int64_t distance, Real& sum, Real& bound) {
  const int precision = sum.precision();
  const Real base(spec.base(), precision);
  sum = Real(0, precision);
  bound = Real(0, precision);
  for (int64_t k = 0; k < spec.dim() / 2; ++k) {
    Real angle = Pow(base, Real(-2 * k, precision) / spec.dim()) * distance;
    mpfr_add(bound.get(), bound.get(), angle.get(), MPFR_RNDU);
    mpfr_cos(angle.get(), angle.get(), MPFR_RNDN);
    sum += angle;
  }
  mpfr_add_si(bound.get(), bound.get(), int64_t{spec.dim()} * spec.dim(), MPFR_RNDU);
  mpfr_mul_2si(bound.get(), bound.get(), 6 - precision, MPFR_RNDU);
}

// Multiplies `value` by scale H / (8 (h + 1)), rounding three times. Returns true if the last
// rounding was exact; the others are exact for a 64-bit value at a precision of 192 bits.
bool MultiplyBySandwichFactor(const v1::Sandwich& spec, int64_t head, double scale, Real& value) {
  value *= spec.num_heads();
  value *= scale;
  return mpfr_div_si(value.get(), value.get(), 8 * (head + 1), MPFR_RNDN) == 0;
}

}  // namespace

void ReferenceSandwich(const v1::Sandwich& spec, int64_t head, int64_t distance,
                       const NumberFormat& format, std::byte* out) {
  RoundByRefining(
      [&](Real& value, Real& bound) {
        if (distance == 0) {
          value = Real(spec.dim() / 2, value.precision());
          bound = Real(0, bound.precision());
        } else {
          SumCosines(spec, distance, value, bound);
        }
        const bool exact = MultiplyBySandwichFactor(spec, head, format.scale, value);
        // A quotient of integers and a double is not a tie unless its binary expansion terminates.
        if (distance == 0 && exact) return;
        // A sum of cosines of nonzero algebraic angles is transcendental (Lindemann and
        // Weierstrass), so it is not a tie either.
        MultiplyBySandwichFactor(spec, head, format.scale, bound);
        mpfr_abs(bound.get(), bound.get(), MPFR_RNDU);
        mpfr_mul_2si(bound.get(), bound.get(), 1, MPFR_RNDU);
        Real rounding(bound.precision());
        SetRoundingBound(value, 3, rounding);
        mpfr_add(bound.get(), bound.get(), rounding.get(), MPFR_RNDU);
      },
      format.type, out);
}

namespace {

// Number of distances computed incrementally before angles are recomputed, and the resulting error
// in a cosine: each of at most 256 steps adds errors of 2^-97 from the rotation and 2^-100 from the
// kernel, and rotates the earlier error.
constexpr int64_t kChain = 256;
constexpr double kCosineBound = 0x1p-87;

// Error of adding a term to a sum of double-doubles.
constexpr double kAdditionBound = 0x1p-103;

constexpr int kCosineFactorPrecision = 192;

std::vector<SinusoidFrequency> FrequenciesOf(const v1::Sandwich& spec) {
  const SinusoidAxis axis = AxisOfBase(spec.base(), spec.dim(), v1::COLUMNS_INTERLEAVED);
  return RowsOf(axis, axis.columns, 1).frequencies;
}

EvaluatorPtr PrepareSandwich(const v1::Sandwich& spec, const NumberFormat& format,
                             const KernelSet& kernels) {
  std::vector<SinusoidFrequency> frequencies = FrequenciesOf(spec);
  const int64_t pairs = PaddedPairs(std::ssize(frequencies));
  RotorRows step(1, pairs);
  SetAngles(frequencies, 1, pairs, step.Row(0));
  std::vector<ScaledRounding> roundings;
  roundings.reserve(spec.num_heads());
  for (int64_t head = 0; head < spec.num_heads(); ++head) {
    Real factor(1, kCosineFactorPrecision);
    MultiplyBySandwichFactor(spec, head, format.scale, factor);
    roundings.emplace_back(factor, format.type);
  }
  return MakeEvaluator([spec, format, &kernels, frequencies = std::move(frequencies), pairs,
                        step = std::move(step), roundings = std::move(roundings)](
                           const Block& block, std::byte* out, int64_t lane_stride_bytes) {
    const double terms = static_cast<double>(spec.dim()) / 2;
    const double error = terms * (kCosineBound + kAdditionBound * terms);
    // The angles at the previous distance. Each step rotates every term by its frequency.
    RotorRows angles(1, pairs);
    const Rotors at = angles.Row(0);
    int64_t before = -1;
    FillByDistance(block, format.type, out, lane_stride_bytes, [&](int64_t distance) {
      if (distance != before + 1 || distance % kChain == 0) {
        SetAngles(frequencies, distance, pairs, at);
      } else {
        kernels.rotate(AsConst(at), step.Row(0), at, pairs);
      }
      before = distance;
      DoubleDouble sum;
      for (size_t i = 0; i < frequencies.size(); ++i) {
        sum = sum + DoubleDouble{at.cos_hi[i], at.cos_lo[i]};
      }
      return [&, distance, sum](int64_t head, std::byte* element) {
        if (roundings[head].TryRound(sum, error, element)) return;
        ReferenceSandwich(spec, head, distance, format, element);
      };
    });
  });
}

absl::StatusOr<Encoding> DescribeSandwich(const v1::Sandwich& spec, const Tables& /*tables*/) {
  const int64_t frequencies = spec.dim() / 2;
  constexpr int64_t kHeadBytes =
      int64_t{sizeof(ScaledRounding)} + Real::BytesOf(kCosineFactorPrecision);
  return Encoding{
      .structure = Structure::kToeplitz,
      .lanes = spec.num_heads(),
      .has_heads = true,
      .domain = kRelativePositions,
      // The frequencies, the angles for a step and for a distance, and the heads' factors.
      .evaluator_bytes = frequencies * int64_t{sizeof(SinusoidFrequency) + 8 * sizeof(double)} +
                         spec.num_heads() * kHeadBytes,
      .prepare = [spec](const NumberFormat& format, const KernelSet& kernels) {
        return PrepareSandwich(spec, format, kernels);
      }};
}

const EncodingRegistration kSandwich(v1::TensorSpec::kSandwichFieldNumber, &DescribeSandwich);

}  // namespace
}  // namespace attnbias
