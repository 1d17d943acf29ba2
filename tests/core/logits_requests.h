// SPDX-License-Identifier: Apache-2.0
// Requests of positional logits, and tables of random numbers for them.
#ifndef ATTNBIAS_TESTS_CORE_LOGITS_REQUESTS_H_
#define ATTNBIAS_TESTS_CORE_LOGITS_REQUESTS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/logits/spec/decomposed_relative_positions.h"
#include "core/logits/spec/logits_spec.h"
#include "core/logits/spec/sequence_terms.h"
#include "core/numerics/rounding.h"
#include "core/table/table.h"
#include "core/tensor/element.h"

namespace attnbias {

inline std::vector<double> Random(DataType type, int64_t count, int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> numbers(count);
  for (double& number : numbers) {
    std::byte element[8];
    RoundDouble(normal(random), type, element);
    number = ReadElement(type, element);
  }
  return numbers;
}

inline std::string ToBytes(DataType type, const std::vector<double>& numbers) {
  std::string bytes(numbers.size() * SizeOf(type), '\0');
  auto* out = reinterpret_cast<std::byte*>(bytes.data());
  for (double number : numbers) {
    RoundDouble(number, type, out);
    out += SizeOf(type);
  }
  return bytes;
}

inline Table TableOf(DataType type, const std::vector<int64_t>& shape,
                     const std::vector<double>& numbers) {
  return *Table::Create(type, shape, ToBytes(type, numbers),
                        TableLayout::kBucketsHeads);
}

inline Table RandomTable(DataType type, const std::vector<int64_t>& shape,
                         int seed) {
  int64_t count = 1;
  for (int64_t length : shape) count *= length;
  return TableOf(type, shape, Random(type, count, seed));
}

inline LogitsSpec Base(int64_t query_length, int64_t key_length,
                       std::optional<int64_t> offset = std::nullopt) {
  LogitsSpec spec;
  spec.num_heads = 3;
  spec.head_dim = 5;
  spec.query_length = query_length;
  spec.key_length = key_length;
  spec.query_offset = offset;
  if (!offset.has_value()) spec.alignment = Alignment::kEnd;
  spec.direction = Direction::kBidirectional;
  return spec;
}

template <typename Term>
Term Shaw(int64_t left, int64_t right, Table table) {
  Term term;
  term.left = left;
  term.right = right;
  term.table = std::move(table);
  return term;
}

inline ShawKeysSpec ShawKeys(int64_t left, int64_t right, int64_t dim,
                             DataType type = DataType::kF32) {
  return Shaw<ShawKeysSpec>(left, right,
                            RandomTable(type, {left + right + 1, dim}, 7));
}

inline SinusoidalDistancesSpec TransformerXl(int64_t dim, int64_t width,
                                             DataType type = DataType::kF32) {
  SinusoidalDistancesSpec term;
  term.sinusoidal.dim = dim;
  term.sinusoidal.layout = SinusoidalLayout::kConcatenated;
  term.projection = RandomTable(type, {width, dim}, 8);
  return term;
}

// Of grids [height, width]; tables of `rows` rows each.
inline LogitsSpec Grids(std::array<int64_t, 2> queries,
                        std::array<int64_t, 2> keys,
                        std::array<int64_t, 2> rows,
                        DataType type = DataType::kF32) {
  LogitsSpec spec = Base(queries[0] * queries[1], keys[0] * keys[1], 0);
  spec.term = DecomposedRelativePositionsSpec{
      .rel_pos_h = RandomTable(type, {rows[0], spec.head_dim}, 5),
      .rel_pos_w = RandomTable(type, {rows[1], spec.head_dim}, 6),
      .query_height = queries[0],
      .query_width = queries[1],
      .key_height = keys[0],
      .key_width = keys[1]};
  return spec;
}

}  // namespace attnbias

#endif  // ATTNBIAS_TESTS_CORE_LOGITS_REQUESTS_H_
