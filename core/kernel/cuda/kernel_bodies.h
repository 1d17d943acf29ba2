// SPDX-License-Identifier: Apache-2.0
// The work of one thread of each CUDA kernel. kernels.cu runs it on a device; tests run it on the
// CPU, over every block and thread of a launch.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/kernel/cuda/launches.h"
#include "core/numerics/narrow.h"

namespace attnbias {

// ---------------------------------------------------------------------------
// Dense expansion

// Returns bytes [begin, begin + 16) of `words`; `begin` is a multiple of 2.
ATTNBIAS_HOST_DEVICE inline Vector16 LoadVector(const DeviceArray<const uint32_t>& words,
                                                int64_t begin) {
  const int64_t word = begin / 4;
  Vector16 vector = {{words[word], words[word + 1], words[word + 2], words[word + 3]}};
  if (begin % 4 == 0) return vector;
  const uint32_t after = words[word + 4];
  for (int i = 0; i < 3; ++i) {
    vector.words[i] = vector.words[i] >> 16 | vector.words[i + 1] << 16;
  }
  vector.words[3] = vector.words[3] >> 16 | after << 16;
  return vector;
}

// Returns element `index` of a packed array.
template <int kBytes>
ATTNBIAS_HOST_DEVICE uint64_t LoadElement(const DeviceArray<const uint32_t>& words, int64_t index) {
  if constexpr (kBytes == 8) {
    return words[2 * index] | static_cast<uint64_t>(words[2 * index + 1]) << 32;
  } else if constexpr (kBytes == 4) {
    return words[index];
  } else {
    return words[index / 2] >> (16 * (index % 2)) & 0xFFFF;
  }
}

// Writes element `index`, a constant after unrolling, into a vector of zeros.
template <int kBytes>
ATTNBIAS_HOST_DEVICE void SetElement(uint64_t bits, int index, Vector16& vector) {
  if constexpr (kBytes == 8) {
    vector.words[2 * index] = static_cast<uint32_t>(bits);
    vector.words[2 * index + 1] = static_cast<uint32_t>(bits >> 32);
  } else if constexpr (kBytes == 4) {
    vector.words[index] = static_cast<uint32_t>(bits);
  } else {
    vector.words[index / 2] |= static_cast<uint32_t>(bits) << (16 * (index % 2));
  }
}

// A pair of the flat tensor.
struct ExpansionPair {
  uint32_t row;  // lane * num_queries + query
  uint32_t key;
};

// Returns the element at a pair, with mask and border.
template <int kBytes>
ATTNBIAS_HOST_DEVICE uint64_t ExpandedElement(const ExpansionLaunch& launch,
                                              const ExpansionPair& pair) {
  const uint32_t lane = pair.row / launch.num_queries;
  const uint32_t query = pair.row - lane * launch.num_queries;
  const int64_t query_position = launch.queries.At(query);
  const int64_t key_position = launch.keys.At(pair.key);
  const int64_t relative = key_position - query_position;
  if (relative < launch.visible_begin || relative >= launch.visible_end) {
    return launch.fill_bits;
  }
  if (launch.border.size() > 0 && (query_position == 0 || key_position == 0)) {
    const int kind = query_position != 0 ? 1 : (key_position != 0 ? 0 : 2);
    return LoadElement<kBytes>(launch.border, int64_t{3} * lane + kind);
  }
  return LoadElement<kBytes>(launch.numbers, lane * launch.lane_numbers +
                                                 launch.key_coordinates.At(pair.key) -
                                                 launch.query_coordinates.At(query));
}

// Returns true if `count` pairs starting at `pair` are in one row and have consecutive numbers,
// without a mask or a border in between. Then sets the index of the first number.
ATTNBIAS_HOST_DEVICE inline bool IsRun(const ExpansionLaunch& launch, const ExpansionPair& pair,
                                       int count, int64_t* first_number) {
  if (launch.num_keys - pair.key < static_cast<uint32_t>(count) || launch.border.size() > 0 ||
      launch.key_coordinates.list.size() > 0) {
    return false;
  }
  const uint32_t lane = pair.row / launch.num_queries;
  const uint32_t query = pair.row - lane * launch.num_queries;
  const int64_t relative = launch.keys.At(pair.key) - launch.queries.At(query);
  *first_number = lane * launch.lane_numbers + launch.key_coordinates.At(pair.key) -
                  launch.query_coordinates.At(query);
  return relative >= launch.visible_begin && relative + count <= launch.visible_end;
}

template <int kBytes>
ATTNBIAS_HOST_DEVICE Vector16 ExpandedVector(const ExpansionLaunch& launch, ExpansionPair pair,
                                             int64_t left) {
  constexpr int kElements = 16 / kBytes;
  int64_t first_number;
  if (left >= kElements && IsRun(launch, pair, kElements, &first_number)) {
    return LoadVector(launch.numbers, first_number * kBytes);
  }
  Vector16 vector = {};
  for (int i = 0; i < kElements; ++i) {
    if (i < left) {
      SetElement<kBytes>(ExpandedElement<kBytes>(launch, pair), i, vector);
    }
    if (++pair.key == launch.num_keys) {
      pair.key = 0;
      ++pair.row;
    }
  }
  return vector;
}

// Writes a thread's vectors with one 64-bit division per thread and one 32-bit division per vector.
template <int kBytes>
ATTNBIAS_HOST_DEVICE void ExpandThread(const ExpansionLaunch& launch, int64_t block, int thread) {
  constexpr int kElements = 16 / kBytes;
  const int64_t block_vector = block * ExpansionLaunch::kVectorsPerBlock;
  const int64_t block_first = launch.first + block_vector * kElements;
  const auto block_row = static_cast<uint32_t>(block_first / launch.num_keys);
  const auto block_key =
      static_cast<uint32_t>(block_first - static_cast<int64_t>(block_row) * launch.num_keys);
  for (int i = 0; i < ExpansionLaunch::kVectorsPerThread; ++i) {
    const int in_block = i * kThreadsPerBlock + thread;
    const int64_t vector = block_vector + in_block;
    if (vector >= launch.out.size()) return;
    const uint32_t key = block_key + static_cast<uint32_t>(in_block * kElements);
    const uint32_t rows = key / launch.num_keys;
    launch.out[vector] =
        ExpandedVector<kBytes>(launch, {block_row + rows, key - rows * launch.num_keys},
                               launch.count - vector * kElements);
  }
}

// ---------------------------------------------------------------------------
// Sinusoids

// A CPU runs the threads one after the other; a device needs an atomic.
ATTNBIAS_HOST_DEVICE inline uint32_t FetchIncrement(uint32_t& counter) {
#ifdef __CUDA_ARCH__
  return atomicAdd(&counter, 1U);
#else
  return counter++;
#endif
}

// A column's frequency, and whether it holds a sine, a cosine, or padding.
struct SinusoidColumn {
  int64_t pair;
  bool is_sine;
  bool is_cosine;
};

ATTNBIAS_HOST_DEVICE inline SinusoidColumn SinusoidColumnAt(const SinusoidLaunch& launch,
                                                            int64_t column) {
  if (launch.pair_stride == 2) {
    const int64_t pair = column / 2;
    const bool odd = column % 2 != 0;
    return {pair, !odd && pair < launch.sines, odd && pair < launch.cosines};
  }
  if (column < launch.sines) return {column, true, false};
  const int64_t pair = column - launch.cos_offset;
  return {pair, false, pair >= 0 && pair < launch.cosines};
}

// Computes an element: the sine or cosine of a sum of two angles. Two fused products give the high
// end of the interval that contains it.
template <class Element>
ATTNBIAS_HOST_DEVICE void SinusoidThread(const SinusoidLaunch& launch,
                                         const DeviceArray<typename Element::Bits>& out,
                                         int64_t block, int thread) {
  const int64_t index = block * kThreadsPerBlock + thread;
  if (index >= launch.rows * launch.width) return;
  const int64_t row = index / launch.width;
  const SinusoidColumn column = SinusoidColumnAt(launch, index - row * launch.width);
  if (!column.is_sine && !column.is_cosine) {
    out[index] = 0;
    return;
  }
  const int64_t anchor_row = row / launch.block_rows;
  const int64_t anchor = anchor_row * launch.pairs + column.pair;
  const int64_t rotation = (row - anchor_row * launch.block_rows) * launch.pairs + column.pair;
  const double bound = column.is_sine ? launch.sin_bound[anchor] : launch.cos_bound;
  const double anchor_sin = launch.anchor_sin[anchor];
  const double anchor_cos = launch.anchor_cos[anchor];
  const double sin = launch.rotation_sin[rotation];
  const double cos = launch.rotation_cos[rotation];
  const double high = column.is_sine ? std::fma(anchor_sin, cos, std::fma(anchor_cos, sin, bound))
                                     : std::fma(-anchor_sin, sin, std::fma(anchor_cos, cos, bound));
  typename Element::Bits bits;
  if (!RoundInterval<Element>(high, bound + bound, &bits)) {
    const uint32_t count = FetchIncrement(launch.undecided_count[0]);
    if (count < launch.undecided.size()) {
      launch.undecided[count] = static_cast<uint32_t>(index);
    }
  }
  out[index] = bits;
}

}  // namespace attnbias
