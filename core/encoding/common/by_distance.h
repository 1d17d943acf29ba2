// SPDX-License-Identifier: Apache-2.0
// Helpers for encodings that depend only on |key - query|. They compute each distance's value once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "core/encoding/encoding.h"
#include "core/tensor/data_type.h"
#include "core/tensor/positions.h"

namespace attnbias {

// Returns the range of distances between 0 and the coordinates in `span`.
inline Range DistancesIn(Range span) {
  const int64_t left = std::abs(span.begin);
  const int64_t right = std::abs(span.end - 1);
  const bool has_zero = span.begin <= 0 && span.end > 0;
  return {has_zero ? 0 : std::min(left, right), std::max(left, right) + 1};
}

// Calls `write` with each coordinate in `span` (at most two) whose distance from 0 is `distance`.
template <typename Write>
void ForEachAt(int64_t distance, Range span, Write write) {
  const auto write_inside = [&](int64_t coordinate) {
    if (coordinate >= span.begin && coordinate < span.end) write(coordinate);
  };
  write_inside(distance);
  if (distance != 0) write_inside(-distance);
}

// Fills a block with values that are the same on both sides of 0. For each distance, in ascending
// order, `writer_at` returns the function that writes a lane's value.
template <typename WriterAt>
void FillByDistance(const Block& block, DataType type, std::byte* out, int64_t lane_stride_bytes,
                    WriterAt writer_at) {
  const int64_t width = SizeOf(type);
  const Range distances = DistancesIn(block.span);
  for (int64_t d = distances.begin; d < distances.end; ++d) {
    const auto write = writer_at(d);
    for (int64_t lane = 0; lane < block.lanes.size(); ++lane) {
      std::byte element[sizeof(double)];
      write(block.lanes.begin + lane, element);
      ForEachAt(d, block.span, [&](int64_t at) {
        std::memcpy(out + lane * lane_stride_bytes + (at - block.span.begin) * width, element,
                    width);
      });
    }
  }
}

}  // namespace attnbias
