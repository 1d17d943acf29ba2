// SPDX-License-Identifier: Apache-2.0
// What the parameters of rotary positions stand for, over real numbers:
// transformers' formulas without its roundings.
//
// All specs are valid. Results are within a relative 2^-precision of the real
// number that the spec's doubles define.
#pragma once

#include <cstdint>
#include <vector>

#include "attnbias/v1/encodings.pb.h"
#include "core/encoding/sinusoid/sinusoid.h"
#include "core/numerics/real.h"

namespace attnbias {

// A complete message, and what follows from it.
struct Rotation {
  v1::Rotary spec;
  // As those of sinusoids; one, plain, if the message has none.
  std::vector<SinusoidAxis> axes;
  // The number of each pair's frequency: among its axis's own, if that has a
  // ladder, else among all.
  std::vector<int32_t> places;
};

// Returns the even number of columns that turn: floor(head_dim x
// partial_rotary_factor), the product rounded to a double as peers do.
int64_t RotatingColumns(const v1::Rotary& spec);

// Returns whether long_factor is in force, and not short_factor.
inline bool UsesLongFactor(const v1::Longrope& spec) {
  return spec.sequence_length() > spec.original_max_position_embeddings();
}

// Returns whether the extension raises the base.
inline bool RaisesRopeTheta(const v1::Rotary& spec) {
  return spec.has_dynamic() || spec.has_ntk();
}

// Pairs of a row, those that do not turn among them.
int64_t RotaryPairs(const v1::Rotary& spec);

// Pairs that turn.
int64_t TurningPairs(const v1::Rotary& spec);

// The axis of position that a pair turns with.
int64_t RotaryAxisOf(const v1::Rotary& spec, int64_t pair);

// Returns whether the axis has frequencies of its own.
inline bool HasLadder(const v1::Rotary& spec, int64_t axis) {
  return !spec.axes().empty() && spec.axes(static_cast<int>(axis)).has_ladder();
}

// The base, after the extension has raised it.
Real EffectiveRopeTheta(const v1::Rotary& spec, int precision);

Real EffectiveAttentionFactor(const v1::Rotary& spec, int precision);

// inv_m, in radians a position of the pair's axis; 0 for pairs that do not
// turn.
class InverseFrequencies {
 public:
  // `rotation` outlives this.
  InverseFrequencies(const Rotation& rotation, int precision);

  Real Of(int64_t pair) const;
  // All of them, by a product each.
  std::vector<Real> All() const;
  // Bounds what they take.
  static int64_t BytesOfAll(const v1::Rotary& spec, int precision);

 private:
  // Frequency k is given[k], or else first step^k.
  struct Axis {
    const double* given;
    double first;
    Real step;
    // Positions count so many times.
    Real stretch;
  };

  // Applies what `power`, which is step^k, is without.
  Real Finished(int64_t pair, Real power) const;
  void Rescale(int64_t pair, Real& frequency) const;
  void SetCorrectionRange(const Real& theta);

  const Rotation& rotation_;
  const v1::Rotary& spec_;
  const int precision_;
  const int working_precision_;
  // YARN: pairs up to `low_` are kept, those from `high_` stretched.
  Real low_;
  Real high_;
  std::vector<Axis> axes_;
};

}  // namespace attnbias
