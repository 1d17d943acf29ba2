// SPDX-License-Identifier: Apache-2.0
// Attention with linear biases (Press et al. 2022).

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/executor.h"
#include "core/encoding/bias/references.h"
#include "core/encoding/encoding.h"
#include "core/numerics/real.h"
#include "core/numerics/rounding.h"

namespace attnbias {
namespace {

// Returns the factor by which a slope is multiplied at a coordinate, which is key - query for
// TOEPLITZ and key - anchor for KEY_ROW.
int64_t AlibiDistance(v1::AlibiVariant variant, int64_t coordinate) {
  switch (variant) {
    case v1::ALIBI_VARIANT_SYMMETRIC:
      return -std::abs(coordinate);
    case v1::ALIBI_VARIANT_CAUSAL:
      return std::min<int64_t>(coordinate, 0);
    default:  // Counts keys from either end.
      return coordinate;
  }
}

// A slope, either exact or rounded once.
struct AlibiSlope {
  Real value;
  bool is_exact;
};

AlibiSlope AlibiSlopeOf(const v1::Alibi& spec, int64_t head, int precision_bits) {
  if (!spec.slopes().empty()) {
    return {Real(spec.slopes(static_cast<int>(head)), precision_bits), true};
  }
  // The slope is 2^(-alibi_bias_max numerator / denominator).
  const int64_t below = std::bit_floor(static_cast<uint32_t>(spec.num_heads()));
  const bool is_below = head < below;
  const int64_t numerator = is_below ? head + 1 : 2 * (head - below) + 1;
  const int64_t denominator = is_below ? below : 2 * below;
  // Exact: the numerator has 17 bits, and the denominator is a power of two.
  const Real power = Real(-spec.alibi_bias_max(), 128) * numerator / denominator;
  // A fractional power of two is irrational.
  AlibiSlope slope = {Real(precision_bits), mpfr_integer_p(power.get()) != 0};
  mpfr_exp2(slope.value.get(), power.get(), MPFR_RNDN);
  return slope;
}

}  // namespace

void ReferenceAlibi(const v1::Alibi& spec, int64_t head, int64_t coordinate,
                    const NumberFormat& format, std::byte* out) {
  const int64_t distance = AlibiDistance(spec.variant(), coordinate);
  const bool is_flat = !spec.slopes().empty() && spec.slopes(static_cast<int>(head)) == 0;
  if (distance == 0 || is_flat) return RoundDouble(0, format.type, out);
  RoundByRefining(
      [&](Real& value, Real& bound) {
        const AlibiSlope slope = AlibiSlopeOf(spec, head, value.precision());
        value = slope.value * format.scale * distance;
        // A product of two doubles and a distance is exact. An irrational slope and its products
        // have been rounded; they are never ties.
        SetRoundingBound(value, 2, bound);
        if (slope.is_exact) mpfr_set_zero(bound.get(), 0);
      },
      format.type, out);
}

namespace {

constexpr int kSlopePrecision = 256;

// slope x scale if that product is a double; otherwise a rounding that multiplies by it.
using Factor = std::variant<double, ScaledRounding>;

Factor FactorOf(const v1::Alibi& spec, int64_t head, const NumberFormat& format) {
  const AlibiSlope slope = AlibiSlopeOf(spec, head, kSlopePrecision);
  const Real product = slope.value * format.scale;
  const double nearest = product.ToDouble();
  if (slope.is_exact && mpfr_cmp_d(product.get(), nearest) == 0) return nearest;
  return ScaledRounding(product, format.type);
}

EvaluatorPtr PrepareAlibi(const v1::Alibi& spec, const NumberFormat& format) {
  std::vector<Factor> factors;
  factors.reserve(spec.num_heads());
  for (int64_t head = 0; head < spec.num_heads() && ComputeScope::Continues(); ++head) {
    factors.push_back(FactorOf(spec, head, format));
  }
  auto write = [spec = spec, format, factors = std::move(factors)](int64_t head, int64_t coordinate,
                                                                   std::byte* out) {
    const Factor& factor = factors[head];
    const double* exact = std::get_if<double>(&factor);
    const int64_t distance = AlibiDistance(spec.variant(), coordinate);
    if (distance == 0 || (exact != nullptr && *exact == 0)) {
      return RoundDouble(0, format.type, out);
    }
    // Exact: distances stay below 2^53.
    const double multiple = static_cast<double>(distance);
    if (exact != nullptr) return RoundProduct(*exact, multiple, format.type, out);
    const double error = ScaledRounding::kLeastError * std::fabs(multiple);
    if (std::get<ScaledRounding>(factor).TryRound({multiple, 0}, error, out)) return;
    ReferenceAlibi(spec, head, coordinate, format, out);
  };
  return MakeEvaluator([write = std::move(write), bytes = SizeOf(format.type)](
                           const Block& block, std::byte* out, int64_t lane_stride_bytes) {
    for (int64_t head = block.lanes.begin; head < block.lanes.end; ++head) {
      for (int64_t at = block.span.begin; at < block.span.end; ++at) {
        write(head, at, out + (at - block.span.begin) * bytes);
      }
      out += lane_stride_bytes;
    }
  });
}

absl::StatusOr<Encoding> DescribeAlibi(const v1::Alibi& spec, const Tables& /*tables*/) {
  const int64_t count = spec.slopes_size();
  const int64_t heads = spec.num_heads();
  const bool from_end = spec.variant() == v1::ALIBI_VARIANT_KEY_FROM_END;
  const bool by_key = from_end || spec.variant() == v1::ALIBI_VARIANT_KEY_FROM_START;
  return Encoding{
      .structure = by_key ? Structure::kKeyRow : Structure::kToeplitz,
      .lanes = heads,
      .has_heads = true,
      .domain = kRelativePositions,
      .anchored_at_last_key = from_end,
      .evaluator_bytes = heads * (int64_t{sizeof(Factor)} + Real::BytesOf(kSlopePrecision)) +
                         count * int64_t{sizeof(double)},
      .prepare = [spec](const NumberFormat& format, const KernelSet& /*kernels*/) {
        return PrepareAlibi(spec, format);
      }};
}

const EncodingRegistration kAlibi(v1::TensorSpec::kAlibiFieldNumber, &DescribeAlibi);

}  // namespace
}  // namespace attnbias
