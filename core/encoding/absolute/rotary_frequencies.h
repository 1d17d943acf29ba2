// SPDX-License-Identifier: Apache-2.0
// Rotary frequencies and factors over real numbers: transformers' formulas, without the rounding.
//
// Specs must be valid. Results differ from the real numbers that the spec's doubles define by a
// relative error of at most 2^-precision.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "attnbias/v1/encodings.pb.h"
#include "core/encoding/sinusoid/sinusoid.h"
#include "core/numerics/real.h"

namespace attnbias {

// A complete message, with its axes and the indices of its frequencies.
struct Rotation {
  v1::Rotary spec;
  // Axes as for sinusoids; one plain axis if the message has none.
  std::vector<SinusoidAxis> axes;
  // Index of each pair's frequency: in the ladder of the pair's axis or, if that axis has no
  // ladder, among the message's own frequencies.
  std::vector<int32_t> places;
};

// Returns the number of columns that rotate: floor(head_dim x partial_rotary_factor), rounded down
// to an even number. The product is rounded to a double, as in other libraries.
int64_t RotatingColumns(const v1::Rotary& spec);

// Returns true if long_factor applies instead of short_factor.
inline bool UsesLongFactor(const v1::Longrope& spec) {
  return spec.sequence_length() > spec.original_max_position_embeddings();
}

// Returns true if the extension raises the base.
inline bool RaisesRopeTheta(const v1::Rotary& spec) { return spec.has_dynamic() || spec.has_ntk(); }

// Returns the number of pairs in a row, including those that do not rotate.
int64_t RotaryPairs(const v1::Rotary& spec);
int64_t RotatingPairs(const v1::Rotary& spec);
int64_t RotaryAxisOf(const v1::Rotary& spec, int64_t pair);

// Returns true if the axis has its own frequencies.
inline bool HasLadder(const v1::Rotary& spec, int64_t axis) {
  return !spec.axes().empty() && spec.axes(static_cast<int>(axis)).has_ladder();
}

// Bits of working precision in addition to the requested precision. Cancellation multiplies errors
// the most (by 2^60) if two of a spec's doubles are adjacent: Llama3's high and low factors, or
// Yarn's betas. Other error factors are at most 2^20; a progression's steps contribute 2^16.
inline constexpr int kFrequencyGuardBits = 160;

// Returns the base, raised if the extension raises it.
Real EffectiveRopeTheta(const v1::Rotary& spec, int precision);

Real EffectiveAttentionFactor(const v1::Rotary& spec, int precision);

// Computes inv_m, in radians per position on the pair's axis; 0 for pairs that do not rotate.
class InverseFrequencies {
 public:
  // `rotation` must outlive this object.
  InverseFrequencies(const Rotation& rotation, int precision);

  Real Of(int64_t pair) const;
  // Calls `use` with each pair's frequency, in order. Each frequency costs one multiplication.
  void ForEach(absl::FunctionRef<void(Real)> use) const;

 private:
  // Frequency k is given[k], or first step^k if `given` is null.
  struct Axis {
    const double* given;
    double first;
    Real step;
    // Factor by which positions are multiplied.
    Real stretch;
  };

  // Returns the pair's frequency. `power` is step^k.
  Real Finished(int64_t pair, Real power) const;
  void Rescale(int64_t pair, Real& frequency) const;
  void SetCorrectionRange(const Real& theta);

  const Rotation& rotation_;
  const v1::Rotary& spec_;
  const int precision_;
  const int working_precision_;
  // Yarn leaves pairs up to `low_` unchanged and stretches pairs from `high_` on.
  Real low_;
  Real high_;
  std::vector<Axis> axes_;
};

}  // namespace attnbias
