// SPDX-License-Identifier: Apache-2.0
// Sinusoidal positions: where sines and cosines stand, how fast each turns, and
// the definition of every element.
#ifndef ATTNBIAS_CORE_ENCODING_SINUSOIDAL_H_
#define ATTNBIAS_CORE_ENCODING_SINUSOIDAL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/encoding/spec.h"
#include "core/numerics/turn.h"
#include "core/tensor/data_type.h"

namespace attnbias {

// The columns of a row. Frequency i has its sine at column i * pair_stride, for
// i < sines, and its cosine at cos_offset + i * pair_stride, for i < cosines.
//
//   dim = 5   INTERLEAVED    s0 c0 s1 c1 s2
//             CONCATENATED   s0 s1 s2 c0 c1
//             TENSOR2TENSOR  s0 s1 c0 c1 0
struct SinusoidColumns {
  enum class Kind : uint8_t { kSine, kCosine, kZero };
  struct Place {
    int64_t frequency;
    Kind kind;
  };

  explicit SinusoidColumns(const SinusoidalSpec& spec);
  Place PlaceOf(int64_t column) const;

  int64_t width;
  int64_t sines;
  int64_t cosines;
  int64_t pair_stride;
  int64_t cos_offset;
};

// How fast a frequency turns, in two units.
struct SinusoidFrequency {
  TurnFraction turns_per_position;
  double radians_per_position;  // nearest
};

// All frequencies of a valid spec: a geometric progression, formed at 384 bits
// by one power and a product each, which keeps it within a relative 2^-360.
std::vector<SinusoidFrequency> SinusoidFrequencies(const SinusoidalSpec& spec);

struct SinusoidElement {
  int64_t position;  // magnitude at most kMaxPosition
  int64_t column;
  double scale = 1;
};

// Writes one element of a valid spec's table as `type`: the definition,
// computed with ever more bits until they decide the rounding. Slow; everything
// else answers to it.
void ReferenceSinusoidal(const SinusoidalSpec& spec,
                         const SinusoidElement& element, DataType type,
                         std::byte* out);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SINUSOIDAL_H_
