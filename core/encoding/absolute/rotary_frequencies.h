// SPDX-License-Identifier: Apache-2.0
// What the parameters of rotary positions stand for, over real numbers:
// transformers' formulas without its roundings.
//
// All specs are valid. Results are within a relative 2^-precision of the real
// number that the spec's doubles define.
#ifndef ATTNBIAS_CORE_ENCODING_ABSOLUTE_ROTARY_FREQUENCIES_H_
#define ATTNBIAS_CORE_ENCODING_ABSOLUTE_ROTARY_FREQUENCIES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "attnbias/v1/encodings.pb.h"
#include "core/numerics/real.h"

namespace attnbias {

// Returns the even number of columns that turn: floor(head_dim x
// partial_rotary_factor), the product rounded to a double as peers do.
int64_t RotatingColumns(const v1::Rotary& spec);

// Returns whether long_factor is in force with LONGROPE, and not short_factor.
inline bool UsesLongFactor(const v1::Rotary& spec) {
  return spec.sequence_length() > spec.original_max_position_embeddings();
}

// Pairs of a row, those that do not turn among them.
int64_t RotaryPairs(const v1::Rotary& spec);

// Pairs that turn.
int64_t TurningPairs(const v1::Rotary& spec);

// The axis of position that a pair turns with.
int64_t RotaryAxisOf(const v1::Rotary& spec, int64_t pair);

// The base, after DYNAMIC and NTK have raised it.
Real EffectiveRopeTheta(const v1::Rotary& spec, int precision);

Real EffectiveAttentionFactor(const v1::Rotary& spec, int precision);

// inv_m, in radians a position of the pair's axis; 0 for pairs that do not
// turn.
class InverseFrequencies {
 public:
  // `spec` outlives this.
  InverseFrequencies(const v1::Rotary& spec, int precision);

  Real Of(int64_t pair) const;
  // All of them, by fewer powers.
  std::vector<Real> All() const;
  // Bounds what they take.
  static int64_t BytesOfAll(const v1::Rotary& spec, int precision);

 private:
  // A pair's frequency is number k of n of a ladder, or of the message's own
  // frequencies if `ladder` is null.
  struct Place {
    const v1::Ladder* ladder;
    int64_t k;
    int64_t n;
  };

  Place PlaceOf(int64_t pair) const;
  // Returns the frequencies that are given and not computed.
  const google::protobuf::RepeatedField<double>& GivenOf(
      const Place& place) const;
  // Sets a progression's frequency k without its first one: ratio^-k.
  void SetPower(const Place& place, int64_t k, Real& power) const;
  // Applies the first frequency, rope_type and the axis's scale to ratio^-k.
  Real Finished(int64_t pair, Real frequency) const;
  void Rescale(int64_t pair, Real& frequency) const;
  void SetCorrectionRange();
  void SetYarnRamp(int64_t pair, Real& ramp) const;
  void SetLlama3Ramp(const Real& frequency, Real& ramp) const;

  const v1::Rotary& spec_;
  const int precision_;
  const int working_precision_;
  Real theta_;
  // YARN: pairs up to `low_` are kept, those from `high_` stretched.
  Real low_;
  Real high_;
  // The place of each pair among those of its axis, and their numbers.
  std::vector<int32_t> ranks_;
  std::array<int64_t, 4> axis_pairs_ = {};
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_ABSOLUTE_ROTARY_FREQUENCIES_H_
