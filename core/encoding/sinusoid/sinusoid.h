// SPDX-License-Identifier: Apache-2.0
// Rows of sines and cosines: where they stand, how fast each turns, what they
// are multiplied by, and the definition of every element.
#ifndef ATTNBIAS_CORE_ENCODING_SINUSOID_SINUSOID_H_
#define ATTNBIAS_CORE_ENCODING_SINUSOID_SINUSOID_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "attnbias/v1/encodings.pb.h"
#include "core/encoding/evaluator.h"
#include "core/numerics/real.h"
#include "core/numerics/turn.h"
#include "core/tensor/data_type.h"

namespace attnbias {

// A sinusoidal table in the terms of the contract's Sinusoidal.
struct SinusoidTable {
  int64_t dim = 0;
  double base = 10000;
  v1::SinusoidalLayout layout = v1::SINUSOIDAL_LAYOUT_INTERLEAVED;
  double min_timescale = 1;
  double max_timescale = 10000;
};

// Returns the table of a message that has Sinusoidal's fields.
template <typename Message>
SinusoidTable SinusoidTableOf(const Message& spec) {
  return {.dim = spec.dim(),
          .base = spec.base(),
          .layout = spec.layout(),
          .min_timescale = spec.min_timescale(),
          .max_timescale = spec.max_timescale()};
}

// The columns of a row. Frequency i has its sine at column i * pair_stride, for
// i < sines, and its cosine at cos_offset + i * pair_stride, for i < cosines.
//
//   dim = 5   INTERLEAVED    s0 c0 s1 c1 s2
//             CONCATENATED   s0 s1 s2 c0 c1
//             TENSOR2TENSOR  s0 s1 c0 c1 0
struct SinusoidColumns {
  enum class Kind : uint8_t { kSine, kCosine, kZero };
  // What stands at a column.
  struct Wave {
    int64_t frequency;
    Kind kind;
  };

  explicit SinusoidColumns(const SinusoidTable& spec);
  Wave WaveAt(int64_t column) const;

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

// Bits that frequencies and scales are formed at, all but the last few correct.
inline constexpr int kSinusoidPrecision = 384;

// From radians a position, in [2^-150, 2^64], at kSinusoidPrecision.
SinusoidFrequency FrequencyOf(const Real& radians_per_position);

// What an evaluator of rows needs to know of them.
struct SinusoidRows {
  SinusoidColumns columns;
  std::vector<SinusoidFrequency> frequencies;
  // A factor of every element, not 0, at kSinusoidPrecision.
  Real scale;
  // Writes the element at a position and column as `type`, by its definition.
  std::function<void(int64_t position, int64_t column, DataType type,
                     std::byte* out)>
      reference;
};

// Refuses a max_timescale below the min_timescale, of TENSOR2TENSOR alone.
absl::Status CheckTimescales(absl::string_view encoding,
                             const SinusoidTable& table);

// What a position is multiplied by: factor / (length + eps).
struct AxisStretch {
  double factor = 1;
  double length = 1;
  double eps = 0;
};

// Those of a valid spec. Frequencies are a geometric progression, formed by one
// power and a product each, which keeps it within a relative 2^-360.
SinusoidRows RowsOf(const SinusoidTable& spec, double scale,
                    const AxisStretch& stretch = {});

// A real number other than 0, to within a relative 2^(6 - precision_bits).
using RealToAnyPrecision = std::function<Real(int precision_bits)>;

// scale x the sine or cosine of position x frequency.
struct ExactSinusoid {
  SinusoidColumns::Kind kind;
  int64_t position;
  const RealToAnyPrecision& frequency;
  const RealToAnyPrecision& scale;
};

// Writes it as `type`: the definition of every such number.
void RoundSinusoid(const ExactSinusoid& sinusoid, DataType type,
                   std::byte* out);

// Writes one element of a valid spec's table: the definition. Slow; everything
// else answers to it.
void ReferenceSinusoidal(const SinusoidTable& spec, int64_t position,
                         int64_t column, const NumberFormat& format,
                         std::byte* out, const AxisStretch& stretch = {});

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SINUSOID_SINUSOID_H_
