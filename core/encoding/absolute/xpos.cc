// SPDX-License-Identifier: Apache-2.0
// xPos (Sun et al. 2022): rotary positions and the decay that queries are
// multiplied, keys divided by.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/executor.h"
#include "core/encoding/absolute/rotary_evaluator.h"
#include "core/encoding/common/scaled_rounding.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/sinusoid/sinusoid.h"
#include "core/encoding/sinusoid/sinusoidal_evaluator.h"
#include "core/numerics/rounding.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

constexpr int64_t kScaleLane = 2;

// Decays stay within 2^kMostDecayExponent of 1, where double-doubles hold them.
constexpr double kMostDecayExponent = 512;

// Rows after which a power is formed afresh and not from the one before.
constexpr int64_t kChainRows = 64;

// Bounds the relative error of a power: of at most 41 factors and kChainRows
// products, each within 2^-102.
constexpr double kPowerBound = 0x1p-95;

// More bits for the exponent of a decay, whose error the power has times 2^9.
constexpr int kDecayGuardBits = 16;

// What a position further from the center multiplies by, to within 4 x 2^-p:
// ((2 pair / dim + gamma) / (1 + gamma))^(steps / scale_base).
Real DecayOf(const v1::Xpos& spec, int64_t pair, int64_t steps, int precision) {
  Real decay(precision + kDecayGuardBits);
  Real other(precision + kDecayGuardBits);
  mpfr_set_si(decay.get(), 2 * pair, MPFR_RNDN);
  mpfr_div_si(decay.get(), decay.get(), spec.dim(), MPFR_RNDN);
  mpfr_add_d(decay.get(), decay.get(), spec.gamma(), MPFR_RNDN);
  mpfr_set_d(other.get(), spec.gamma(), MPFR_RNDN);
  mpfr_add_ui(other.get(), other.get(), 1, MPFR_RNDN);
  mpfr_div(decay.get(), decay.get(), other.get(), MPFR_RNDN);
  mpfr_set_si(other.get(), steps, MPFR_RNDN);
  mpfr_div_d(other.get(), other.get(), spec.scale_base(), MPFR_RNDN);
  mpfr_pow(decay.get(), decay.get(), other.get(), MPFR_RNDN);
  return decay;
}

// Decays count from there.
int64_t CenterOf(const v1::Xpos& spec) { return spec.sequence_length() / 2; }

// Positions from the center that decays are formed for.
int64_t ReachOf(const v1::Xpos& spec) {
  const double steepest = std::log2(1 + spec.gamma()) - std::log2(spec.gamma());
  const double reach = kMostDecayExponent * spec.scale_base() / steepest;
  return static_cast<int64_t>(
      std::min(reach, static_cast<double>(2 * kMaxPosition)));
}

// Powers 1, 2, 4, ... of the decays of one position, one way or the other.
class Powers {
 public:
  // Of one; what making it takes on the way is not among them.
  static int64_t BytesOf(const v1::Xpos& spec) {
    return spec.dim() / 2 * CountOf(spec) * int64_t{sizeof(DoubleDouble)};
  }

  Powers(const v1::Xpos& spec, int64_t step) : pairs_(spec.dim() / 2) {
    std::vector<Real> powers;
    powers.reserve(pairs_);
    values_.reserve(pairs_ * CountOf(spec));
    for (int64_t pair = 0; pair < pairs_; ++pair) {
      if (!MakingScope::Continues()) return;
      powers.push_back(DecayOf(spec, pair, step, kSinusoidPrecision));
    }
    for (int64_t reach = ReachOf(spec); reach > 0; reach /= 2) {
      for (Real& power : powers) {
        if (!MakingScope::Continues()) return;
        values_.push_back(ToDoubleDouble(power));
        mpfr_sqr(power.get(), power.get(), MPFR_RNDN);
      }
    }
  }

  DoubleDouble One(int64_t pair) const { return values_[pair]; }

  DoubleDouble Of(int64_t pair, int64_t exponent) const {
    DoubleDouble product = {1, 0};
    for (size_t at = pair; exponent != 0; exponent /= 2, at += pairs_) {
      if (exponent % 2 != 0) product = product * values_[at];
    }
    return product;
  }

 private:
  static int64_t CountOf(const v1::Xpos& spec) {
    return std::bit_width(static_cast<uint64_t>(ReachOf(spec)));
  }

  const int64_t pairs_;
  std::vector<DoubleDouble> values_;
};

class XposEvaluator final : public Evaluator {
 public:
  XposEvaluator(const v1::Xpos& spec, const NumberFormat& format,
                EvaluatorPtr rotary)
      : spec_(spec),
        format_(format),
        pairs_(spec.dim() / 2),
        rotary_(std::move(rotary)),
        rounding_(format.scale, format.type),
        after_(spec, 1),
        before_(spec, -1) {}

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override {
    Block rotary = block;
    rotary.lanes.end = std::min(rotary.lanes.end, kScaleLane);
    if (rotary.lanes.size() > 0) rotary_->Fill(rotary, out, lane_stride_bytes);
    if (block.lanes.end > kScaleLane) {
      FillScale(block.span,
                out + (kScaleLane - block.lanes.begin) * lane_stride_bytes);
    }
  }

 private:
  void FillScale(Range span, std::byte* out) const {
    const int64_t center = CenterOf(spec_);
    std::vector<DoubleDouble> decays(pairs_);
    std::vector<std::byte> row(pairs_ * SizeOf(format_.type));
    for (int64_t at = span.begin; at < span.end; ++at) {
      const int64_t steps = at - center;
      const bool fresh = (at - span.begin) % kChainRows == 0;
      for (int64_t pair = 0; pair < pairs_; ++pair) {
        decays[pair] =
            fresh ? (steps < 0 ? before_ : after_).Of(pair, std::abs(steps))
                  : decays[pair] * after_.One(pair);
        std::byte* element = row.data() + pair * SizeOf(format_.type);
        const double error = kPowerBound * decays[pair].hi;
        if (!rounding_.TryRound(decays[pair], error, element)) {
          Resolve(pair, steps, element);
        }
      }
      WriteRotaryRow(spec_.layout(), format_.type, row.data(), pairs_, out);
      out += pairs_ * CopiesIn(spec_.layout()) * SizeOf(format_.type);
    }
  }

  void Resolve(int64_t pair, int64_t steps, std::byte* out) const {
    const RealCacheScope cache_scope;
    RoundByRefining(
        [&](Real& value, Real& bound) {
          const Real decay = DecayOf(spec_, pair, steps, value.precision());
          mpfr_mul_d(value.get(), decay.get(), format_.scale, MPFR_RNDN);
          SetRoundingBound(value, 3, bound);
        },
        format_.type, out);
  }

  const v1::Xpos spec_;
  const NumberFormat format_;
  const int64_t pairs_;
  const EvaluatorPtr rotary_;
  const ScaledRounding rounding_;
  const Powers after_;
  const Powers before_;
};

std::vector<SinusoidAxis> AnglesOf(const v1::Xpos& spec) {
  return {AxisOfBase(spec.rope_theta(), spec.dim(), v1::COLUMNS_SINES_COSINES)};
}

EvaluatorPtr PrepareXpos(const v1::Xpos& spec, const NumberFormat& format,
                         const KernelSet& kernels) {
  const RealCacheScope cache_scope;
  const Real scale(format.scale, kSinusoidPrecision);
  EvaluatorPtr rotary =
      PrepareRotary(PrepareSinusoids(AnglesOf(spec), format, kernels),
                    std::vector<bool>(spec.dim() / 2, true), scale,
                    spec.layout(), format.type);
  return std::make_unique<XposEvaluator>(spec, format, std::move(rotary));
}

int64_t EvaluatorBytes(const v1::Xpos& spec) {
  const int64_t pairs = spec.dim() / 2;
  // Of one row the decays, and their rounded numbers.
  const int64_t row = pairs * int64_t{sizeof(DoubleDouble) + sizeof(double)};
  return SinusoidsBytes(AnglesOf(spec)) + RotaryBytes(pairs) +
         2 * Powers::BytesOf(spec) +
         pairs * Real::BytesOf(kSinusoidPrecision + kDecayGuardBits) + row;
}

absl::StatusOr<Encoding> DescribeXpos(const v1::Xpos& spec,
                                      const Tables& /*tables*/) {
  // Lengths with one center have one table.
  auto canonical = std::make_shared<v1::Xpos>(spec);
  canonical->set_sequence_length(CenterOf(spec));
  const int64_t reach = ReachOf(spec);
  return Encoding{
      .lanes = 3,
      .part_names = {"cos", "sin", "scale"},
      .width = spec.dim() / 2 * CopiesIn(spec.layout()),
      .has_columns = true,
      .domain = {std::max(CenterOf(spec) - reach, kAllPositions.begin),
                 std::min(CenterOf(spec) + reach + 1, kAllPositions.end)},
      .canonical = std::move(canonical),
      .evaluator_bytes = EvaluatorBytes(spec),
      .prepare = std::bind_front(&PrepareXpos, spec)};
}

const EncodingRegistration kXpos(v1::TensorSpec::kXposFieldNumber,
                                 &DescribeXpos);

}  // namespace
}  // namespace attnbias
