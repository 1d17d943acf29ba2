// SPDX-License-Identifier: Apache-2.0
// KERPLE (Chi et al. 2022).

#include <cmath>
#include <utility>
#include <vector>

#include "core/base/errors.h"
#include "core/encoding/bias/references.h"
#include "core/encoding/common/by_distance.h"
#include "core/encoding/encoding.h"
#include "core/numerics/double_double.h"
#include "core/numerics/real.h"
#include "core/numerics/rounding.h"

namespace attnbias {
namespace {

// Enough bits for the product of a distance and a double, or of two doubles.
constexpr int kKernelPrecision = 128;

// Sets `value` to ln(1 + a d) or d^p, and returns whether the value is exact.
//
// ln(1 + a d) is transcendental (Lindemann). d^p, where p's denominator is a power of two, is an
// integer below 2^86 or irrational; MPFR reports which.
bool SetKernel(const KerpleHead& head, int64_t distance, Real& value) {
  if (head.is_log) {
    const Real product = Real(head.a, kKernelPrecision) * distance;
    mpfr_log1p(value.get(), product.get(), MPFR_RNDN);
    return false;
  }
  const Real power(head.p, kKernelPrecision);
  const Real base(distance, kKernelPrecision);
  return mpfr_pow(value.get(), base.get(), power.get(), MPFR_RNDN) == 0;
}

}  // namespace

void ReferenceKerple(const KerpleHead& head, int64_t distance, const NumberFormat& format,
                     std::byte* out) {
  if (distance == 0) return RoundDouble(0, format.type, out);
  RoundByRefining(
      [&](Real& value, Real& bound) {
        const bool exact = SetKernel(head, distance, value);
        value *= head.weight();
        value *= format.scale;
        // If the kernel is an integer, its products are exact too. Otherwise the value is
        // irrational, so it is never a tie, and it has been rounded three times.
        SetRoundingBound(value, 2, bound);
        if (exact) mpfr_set_zero(bound.get(), 0);
      },
      format.type, out);
}

namespace {

// Returns ln(1 + a d) or d^p.
Estimate KernelOf(const KerpleHead& head, double distance, DoubleDouble log) {
  if (head.is_log) {
    // LogOf's error of 2^-103 covers the relative error of 1 + a d, which is 2^-104.
    return LogOf(DoubleDouble{1, 0} + TwoProduct(head.a, distance));
  }
  const DoubleDouble exponent = log * head.p;
  Estimate power = ExpOf(exponent);
  power.bound += 2 * kLogBound * (1 + std::fabs(exponent.hi)) * power.value.hi;
  return power;
}

EvaluatorPtr PrepareKerple(const v1::Kerple& spec, const NumberFormat& format) {
  std::vector<KerpleHead> heads;
  std::vector<ScaledRounding> roundings;
  heads.reserve(spec.num_heads());
  roundings.reserve(spec.num_heads());
  for (int head = 0; head < spec.num_heads() && ComputeScope::Continues(); ++head) {
    heads.emplace_back(spec, head);
    roundings.emplace_back(Real(heads.back().weight(), kKernelPrecision) * format.scale,
                           format.type);
  }
  return MakeEvaluator([format, heads = std::move(heads), roundings = std::move(roundings)](
                           const Block& block, std::byte* out, int64_t lane_stride_bytes) {
    FillByDistance(block, format.type, out, lane_stride_bytes, [&](int64_t distance) {
      // Used only by POWER.
      DoubleDouble log;
      if (distance > 0 && !heads[0].is_log) log = LogOf({static_cast<double>(distance), 0}).value;
      return [&, distance, log](int64_t head, std::byte* element) {
        if (distance != 0) {
          const Estimate kernel = KernelOf(heads[head], static_cast<double>(distance), log);
          if (roundings[head].TryRound(kernel.value, kernel.bound, element)) return;
        }
        ReferenceKerple(heads[head], distance, format, element);
      };
    });
  });
}

absl::StatusOr<Encoding> DescribeKerple(const v1::Kerple& spec, const Tables& /*tables*/) {
  if (spec.kernel() == v1::KERPLE_KERNEL_POWER) {
    for (int i = 0; i < spec.p_size(); ++i) {
      if (spec.p(i) <= 2) continue;
      return Invalid("kerple.p[", i, "]: got ", spec.p(i), ", want at most 2 with kernel POWER");
    }
  }
  constexpr int64_t kHeadBytes =
      int64_t{sizeof(KerpleHead) + sizeof(ScaledRounding)} + Real::BytesOf(kKernelPrecision);
  return Encoding{.structure = Structure::kToeplitz,
                  .lanes = spec.num_heads(),
                  .has_heads = true,
                  .domain = kRelativePositions,
                  .evaluator_bytes = spec.num_heads() * kHeadBytes,
                  .prepare = [spec](const NumberFormat& format, const KernelSet& /*kernels*/) {
                    return PrepareKerple(spec, format);
                  }};
}

const EncodingRegistration kKerple(v1::TensorSpec::kKerpleFieldNumber, &DescribeKerple);

}  // namespace
}  // namespace attnbias
