// SPDX-License-Identifier: Apache-2.0
// For encodings that look at |key - query| alone: each distance once.
#ifndef ATTNBIAS_CORE_ENCODING_BY_DISTANCE_H_
#define ATTNBIAS_CORE_ENCODING_BY_DISTANCE_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "core/tensor/range.h"

namespace attnbias {

// The distances from 0 of a span's coordinates.
inline Range DistancesIn(Range span) {
  const int64_t left = std::abs(span.begin);
  const int64_t right = std::abs(span.end - 1);
  const bool has_zero = span.begin <= 0 && span.end > 0;
  return {has_zero ? 0 : std::min(left, right), std::max(left, right) + 1};
}

// Calls `write` with each coordinate of `span`, of which there are at most two,
// that lies at `distance` from 0.
template <typename Write>
void ForEachAt(int64_t distance, Range span, Write write) {
  const auto write_inside = [&](int64_t coordinate) {
    if (coordinate >= span.begin && coordinate < span.end) write(coordinate);
  };
  write_inside(distance);
  if (distance != 0) write_inside(-distance);
}

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_BY_DISTANCE_H_
