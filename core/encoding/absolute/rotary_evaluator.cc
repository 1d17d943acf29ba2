// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/absolute/rotary_evaluator.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/executor.h"
#include "core/encoding/absolute/rotary_frequencies.h"
#include "core/encoding/common/scaled_rounding.h"
#include "core/encoding/sinusoid/sinusoid.h"
#include "core/numerics/rounding.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

// The other lane has the sines.
constexpr int64_t kCosLane = 0;

// Rows are laid out in pieces of about this size, which stays in a core's own
// cache.
constexpr int64_t kPairPieceBytes = int64_t{128} << 10;
constexpr int64_t kMostPieceRows = 1024;

template <typename Element>
void RepeatEach(const std::byte* elements, int64_t count, std::byte* out) {
  for (int64_t i = 0; i < count; ++i) {
    Element pair[2];
    std::memcpy(&pair[0], elements + i * sizeof(Element), sizeof(Element));
    pair[1] = pair[0];
    std::memcpy(out + i * sizeof(pair), pair, sizeof(pair));
  }
}

// Lays the numbers of `count` pairs out as a row.
void WriteRotaryRow(v1::RotaryLayout layout, DataType type,
                    const std::byte* pairs, int64_t count, std::byte* out) {
  const int64_t size = count * SizeOf(type);
  if (layout == v1::ROTARY_LAYOUT_INTERLEAVED) {
    switch (SizeOf(type)) {
      case 2:
        return RepeatEach<uint16_t>(pairs, count, out);
      case 4:
        return RepeatEach<uint32_t>(pairs, count, out);
      default:
        return RepeatEach<uint64_t>(pairs, count, out);
    }
  }
  std::memcpy(out, pairs, size);
  if (layout == v1::ROTARY_LAYOUT_HALF) std::memcpy(out + size, pairs, size);
}

class RotaryEvaluator final : public Evaluator {
 public:
  RotaryEvaluator(EvaluatorPtr rows, int64_t pairs, v1::RotaryLayout layout,
                  DataType type)
      : rows_(std::move(rows)), pairs_(pairs), layout_(layout), type_(type) {}

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override {
    const int64_t half_bytes = pairs_ * SizeOf(type_);
    const int64_t row_bytes = CopiesIn(layout_) * half_bytes;
    const int64_t most = std::clamp<int64_t>(kPairPieceBytes / (2 * half_bytes),
                                             1, kMostPieceRows);
    std::vector<std::byte> piece(std::min(most, block.span.size()) * 2 *
                                 half_bytes);
    for (int64_t first = block.span.begin; first < block.span.end;) {
      const int64_t end = std::min(first + most, block.span.end);
      rows_->Fill({{0, 1}, {first, end}}, piece.data(), 0);
      for (int64_t lane = block.lanes.begin; lane < block.lanes.end; ++lane) {
        const std::byte* from =
            piece.data() + (lane == kCosLane ? half_bytes : 0);
        std::byte* to = out + (lane - block.lanes.begin) * lane_stride_bytes +
                        (first - block.span.begin) * row_bytes;
        for (int64_t row = first; row < end; ++row) {
          WriteRotaryRow(layout_, type_, from, pairs_, to);
          from += 2 * half_bytes;
          to += row_bytes;
        }
      }
      first = end;
    }
  }

 private:
  const EvaluatorPtr rows_;
  const int64_t pairs_;
  const v1::RotaryLayout layout_;
  const DataType type_;
};

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

// Returns the decay over so many steps from the center, to within 4 x 2^-p:
// ((pair / pairs + gamma) / (1 + gamma))^(steps / scale_base).
Real DecayOf(const v1::Decay& decay, int64_t pairs, int64_t pair, int64_t steps,
             int precision) {
  precision += kDecayGuardBits;
  const Real base = (Real(pair, precision) / pairs + decay.gamma()) /
                    (Real(decay.gamma(), precision) + 1);
  return Pow(base, Real(steps, precision) / decay.scale_base());
}

// Positions from the center that decays are formed for.
int64_t ReachOf(const v1::Decay& decay) {
  const double steepest =
      std::log2(1 + decay.gamma()) - std::log2(decay.gamma());
  const double reach = kMostDecayExponent * decay.scale_base() / steepest;
  return static_cast<int64_t>(
      std::min(reach, static_cast<double>(2 * kMaxPosition)));
}

// Powers 1, 2, 4, ... of the decays of one position, one way or the other.
class Powers {
 public:
  // Returns the bytes of finished powers, without those of making them.
  static int64_t BytesOf(const v1::Decay& decay, int64_t pairs) {
    return pairs * CountOf(decay) * int64_t{sizeof(DoubleDouble)};
  }

  Powers(const v1::Decay& decay, int64_t pairs, int64_t step) : pairs_(pairs) {
    std::vector<Real> powers;
    powers.reserve(pairs_);
    values_.reserve(pairs_ * CountOf(decay));
    for (int64_t pair = 0; pair < pairs_; ++pair) {
      if (!MakingScope::Continues()) return;
      powers.push_back(DecayOf(decay, pairs, pair, step, kSinusoidPrecision));
    }
    for (int64_t reach = ReachOf(decay); reach > 0; reach /= 2) {
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
  static int64_t CountOf(const v1::Decay& decay) {
    return std::bit_width(static_cast<uint64_t>(ReachOf(decay)));
  }

  const int64_t pairs_;
  std::vector<DoubleDouble> values_;
};

class DecayEvaluator final : public Evaluator {
 public:
  DecayEvaluator(const v1::Rotary& spec, const NumberFormat& format,
                 EvaluatorPtr rotary)
      : decay_(spec.decay()),
        layout_(spec.layout()),
        format_(format),
        pairs_(RotaryPairs(spec)),
        rotary_(std::move(rotary)),
        rounding_(format.scale, format.type),
        after_(decay_, pairs_, 1),
        before_(decay_, pairs_, -1) {}

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
    std::vector<DoubleDouble> decays(pairs_);
    std::vector<std::byte> row(pairs_ * SizeOf(format_.type));
    for (int64_t at = span.begin; at < span.end; ++at) {
      const int64_t steps = at - decay_.center();
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
      WriteRotaryRow(layout_, format_.type, row.data(), pairs_, out);
      out += pairs_ * CopiesIn(layout_) * SizeOf(format_.type);
    }
  }

  void Resolve(int64_t pair, int64_t steps, std::byte* out) const {
    const RealCacheScope cache_scope;
    RoundByRefining(
        [&](Real& value, Real& bound) {
          const Real decay =
              DecayOf(decay_, pairs_, pair, steps, value.precision());
          mpfr_mul_d(value.get(), decay.get(), format_.scale, MPFR_RNDN);
          SetRoundingBound(value, 3, bound);
        },
        format_.type, out);
  }

  const v1::Decay decay_;
  const v1::RotaryLayout layout_;
  const NumberFormat format_;
  const int64_t pairs_;
  const EvaluatorPtr rotary_;
  const ScaledRounding rounding_;
  const Powers after_;
  const Powers before_;
};

}  // namespace

int64_t RotaryBytes(int64_t pairs) {
  // A piece of one row at least.
  return kPairPieceBytes + 2 * pairs * int64_t{sizeof(double)};
}

int64_t CopiesIn(v1::RotaryLayout layout) {
  return layout == v1::ROTARY_LAYOUT_COMPACT ? 1 : 2;
}

EvaluatorPtr PrepareRotary(EvaluatorPtr rows, int64_t pairs,
                           v1::RotaryLayout layout, DataType type) {
  return std::make_unique<RotaryEvaluator>(std::move(rows), pairs, layout,
                                           type);
}

Range DecayDomain(const v1::Decay& decay) {
  const int64_t reach = ReachOf(decay);
  return {std::max(decay.center() - reach, kAllPositions.begin),
          std::min(decay.center() + reach + 1, kAllPositions.end)};
}

int64_t DecayBytes(const v1::Rotary& spec) {
  // Per pair: the power being formed, a decay and its rounded number.
  const int64_t pair = Real::BytesOf(kSinusoidPrecision + kDecayGuardBits) +
                       int64_t{sizeof(DoubleDouble) + sizeof(double)};
  const int64_t pairs = RotaryPairs(spec);
  return 2 * Powers::BytesOf(spec.decay(), pairs) + pairs * pair;
}

EvaluatorPtr PrepareDecay(const v1::Rotary& spec, const NumberFormat& format,
                          EvaluatorPtr rotary) {
  return std::make_unique<DecayEvaluator>(spec, format, std::move(rotary));
}

}  // namespace attnbias
