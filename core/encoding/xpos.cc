// SPDX-License-Identifier: Apache-2.0
// xPos (Sun et al. 2022): rotary positions and the decay that queries are
// multiplied, keys divided by.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/encoding/checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/rotary_evaluator.h"
#include "core/encoding/scaled_rounding.h"
#include "core/encoding/sinusoidal.h"
#include "core/encoding/sinusoidal_evaluator.h"
#include "core/numerics/rounding.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

constexpr int64_t kMaxDim = 65536;
constexpr double kMaxTheta = 1e18;
constexpr double kMaxScaleBase = 1e9;
constexpr double kMaxGamma = 1e6;
constexpr int64_t kScaleLane = 2;

// Decays stay within 2^kMostExponent of 1, where double-doubles hold them.
constexpr double kMostExponent = 512;

// Rows after which a power is formed afresh and not from the one before.
constexpr int64_t kChainRows = 64;

// Bounds the relative error of a power: of at most 41 factors and kChainRows
// products, each within 2^-102.
constexpr double kPowerBound = 0x1p-95;

int64_t CenterOf(const XposSpec& spec) { return *spec.sequence_length / 2; }

// What a position further from the center multiplies by, to within 4 x 2^-p:
// ((2 pair / dim + gamma) / (1 + gamma))^(steps / scale_base).
Real DecayOf(const XposSpec& spec, int64_t pair, int64_t steps, int precision) {
  // A guard for the exponent, of which 2^9 makes an error of the power.
  Real decay(precision + 16);
  Real other(precision + 16);
  mpfr_set_si(decay.get(), 2 * pair, MPFR_RNDN);
  mpfr_div_si(decay.get(), decay.get(), spec.dim, MPFR_RNDN);
  mpfr_add_d(decay.get(), decay.get(), spec.gamma, MPFR_RNDN);
  mpfr_set_d(other.get(), spec.gamma, MPFR_RNDN);
  mpfr_add_ui(other.get(), other.get(), 1, MPFR_RNDN);
  mpfr_div(decay.get(), decay.get(), other.get(), MPFR_RNDN);
  mpfr_set_si(other.get(), steps, MPFR_RNDN);
  mpfr_div_d(other.get(), other.get(), spec.scale_base, MPFR_RNDN);
  mpfr_pow(decay.get(), decay.get(), other.get(), MPFR_RNDN);
  return decay;
}

// Positions from the center that decays are formed for.
int64_t ReachOf(const XposSpec& spec) {
  const double steepest = std::log2(1 + spec.gamma) - std::log2(spec.gamma);
  const double reach = kMostExponent * spec.scale_base / steepest;
  return static_cast<int64_t>(
      std::min(reach, static_cast<double>(2 * kMaxPosition)));
}

// Powers 1, 2, 4, ... of the decays of one position, one way or the other.
class Powers {
 public:
  Powers(const XposSpec& spec, int64_t step) : pairs_(spec.dim / 2) {
    std::vector<Real> powers;
    for (int64_t pair = 0; pair < pairs_; ++pair) {
      powers.push_back(DecayOf(spec, pair, step, kSinusoidPrecision));
    }
    for (int64_t reach = ReachOf(spec); reach > 0; reach /= 2) {
      for (Real& power : powers) {
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

  int64_t memory_bytes() const {
    return static_cast<int64_t>(values_.size() * sizeof(DoubleDouble));
  }

 private:
  const int64_t pairs_;
  std::vector<DoubleDouble> values_;
};

class XposEvaluator final : public Evaluator {
 public:
  XposEvaluator(const XposSpec& spec, const Real& scale, DataType type,
                std::unique_ptr<const Evaluator> rotary)
      : spec_(spec),
        type_(type),
        pairs_(spec.dim / 2),
        rotary_(std::move(rotary)),
        rounding_(scale, type),
        scale_(mpfr_get_d(scale.get(), MPFR_RNDN)),
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

  int64_t memory_bytes() const override {
    return rotary_->memory_bytes() + after_.memory_bytes() +
           before_.memory_bytes();
  }

 private:
  void FillScale(Range span, std::byte* out) const {
    const int64_t center = CenterOf(spec_);
    std::vector<DoubleDouble> decays(pairs_);
    std::vector<std::byte> row(pairs_ * SizeOf(type_));
    for (int64_t at = span.begin; at < span.end; ++at) {
      const int64_t steps = at - center;
      const bool fresh = (at - span.begin) % kChainRows == 0;
      for (int64_t pair = 0; pair < pairs_; ++pair) {
        decays[pair] =
            fresh ? (steps < 0 ? before_ : after_).Of(pair, std::abs(steps))
                  : decays[pair] * after_.One(pair);
        std::byte* element = row.data() + pair * SizeOf(type_);
        const double error = kPowerBound * decays[pair].hi;
        if (!rounding_.TryRound(decays[pair], error, element)) {
          Resolve(pair, steps, element);
        }
      }
      WriteRotaryRow(spec_.layout, type_, row.data(), pairs_, out);
      out += pairs_ * CopiesIn(spec_.layout) * SizeOf(type_);
    }
  }

  void Resolve(int64_t pair, int64_t steps, std::byte* out) const {
    const RealCacheScope cache_scope;
    RoundByRefining(
        [&](Real& value, Real& bound) {
          const auto precision = static_cast<int>(mpfr_get_prec(value.get()));
          const Real decay = DecayOf(spec_, pair, steps, precision);
          mpfr_mul_d(value.get(), decay.get(), scale_, MPFR_RNDN);
          SetRoundingBound(value, 3, bound);
        },
        type_, out);
  }

  const XposSpec spec_;
  const DataType type_;
  const int64_t pairs_;
  const std::unique_ptr<const Evaluator> rotary_;
  const ScaledRounding rounding_;
  const double scale_;
  const Powers after_;
  const Powers before_;
};

class XposEncoding final : public Encoding {
 public:
  XposEncoding(const XposSpec& spec, double scale)
      : spec_(spec), scale_(scale) {}

  std::string_view name() const override { return "xpos"; }
  Structure structure() const override { return Structure::kTable; }
  int64_t lanes() const override { return 3; }
  std::vector<std::string_view> part_names() const override {
    return {"cos", "sin", "scale"};
  }
  int64_t width() const override {
    return spec_.dim / 2 * CopiesIn(spec_.layout);
  }
  Range domain() const override {
    const int64_t center = CenterOf(spec_);
    const int64_t reach = ReachOf(spec_);
    return {std::max(center - reach, kAllPositions.begin),
            std::min(center + reach + 1, kAllPositions.end)};
  }

  // Lengths with one center have one table.
  void WriteIdentity(CanonicalWriter& writer) const override {
    const XposSpec defaults;
    writer.Integer(1, spec_.dim);
    writer.Real(2, spec_.rope_theta, defaults.rope_theta);
    writer.Real(3, spec_.scale_base, defaults.scale_base);
    writer.Real(4, spec_.gamma, defaults.gamma);
    writer.Integer(5, CenterOf(spec_));
    writer.Integer(6, static_cast<int64_t>(spec_.layout),
                   static_cast<int64_t>(defaults.layout));
    writer.Real(101, scale_, 1);
  }

  std::unique_ptr<const Evaluator> Prepare(
      DataType type, const KernelSet& kernels) const override {
    const RealCacheScope cache_scope;
    SinusoidRows rows = RowsOf({.dim = spec_.dim,
                                .base = spec_.rope_theta,
                                .layout = SinusoidalLayout::kConcatenated},
                               scale_);
    Real scale(kSinusoidPrecision);
    mpfr_set_d(scale.get(), scale_, MPFR_RNDN);
    auto rotary = std::make_unique<RotaryEvaluator>(
        std::make_unique<SinusoidalEvaluator>(std::move(rows), type, kernels),
        std::vector<bool>(spec_.dim / 2, true), scale, spec_.layout, type);
    return std::make_unique<XposEvaluator>(spec_, scale, type,
                                           std::move(rotary));
  }

 private:
  const XposSpec spec_;
  const double scale_;
};

absl::Status Check(const XposSpec& spec) {
  if (spec.dim < 2 || spec.dim > kMaxDim || spec.dim % 2 != 0) {
    return Invalid("xpos.dim: got ", spec.dim, ", want an even number in [2, ",
                   kMaxDim, "]");
  }
  if (!(spec.rope_theta >= 1 && spec.rope_theta <= kMaxTheta)) {
    return Invalid("xpos.rope_theta: got ", spec.rope_theta,
                   ", want a number in [1, ", kMaxTheta, "]");
  }
  if (!(spec.scale_base >= 1 && spec.scale_base <= kMaxScaleBase)) {
    return Invalid("xpos.scale_base: got ", spec.scale_base,
                   ", want a number in [1, ", kMaxScaleBase, "]");
  }
  if (!(spec.gamma > 0 && spec.gamma <= kMaxGamma)) {
    return Invalid("xpos.gamma: got ", spec.gamma, ", want a number in (0, ",
                   kMaxGamma, "]");
  }
  if (!spec.sequence_length.has_value()) {
    return Invalid(
        "xpos.sequence_length: not set, want the length that the "
        "table is for");
  }
  if (*spec.sequence_length < 1 || *spec.sequence_length > kMaxPosition) {
    return Invalid("xpos.sequence_length: got ", *spec.sequence_length,
                   ", want an integer in [1, 2^40]");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const XposSpec& spec,
                                         const Output& output) {
  ATTNBIAS_RETURN_IF_ERROR(Check(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckBias(output, "xpos"));
  ATTNBIAS_RETURN_IF_ERROR(CheckScale(output));
  return std::make_shared<const XposEncoding>(spec, output.scale);
}

}  // namespace attnbias
