// SPDX-License-Identifier: Apache-2.0
// Requests for positional logits, and random tables for them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "attnbias/v1/logits.pb.h"
#include "core/logits/plan.h"
#include "core/numerics/rounding.h"
#include "core/tensor/data_type.h"
#include "tests/unit/support/specs.h"

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

inline v1::TableRef RefOf(DataType type, const std::vector<int64_t>& shape,
                          const std::vector<double>& numbers) {
  return Ref(*Table::Create(type, shape, ToBytes(type, numbers), TableLayout::kBucketsHeads));
}

inline v1::TableRef RandomRef(DataType type, const std::vector<int64_t>& shape, int seed) {
  int64_t count = 1;
  for (int64_t length : shape) count *= length;
  return RefOf(type, shape, Random(type, count, seed));
}

// Copies the tables to which a message refers and no others, since a request's tables determine the
// type of its products.
inline void CopyTables(const google::protobuf::Message& message, Tables& tables) {
  if (message.GetDescriptor() == v1::TableRef::descriptor()) {
    tables.Add(TableAt(static_cast<const v1::TableRef&>(message)));
    return;
  }
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->message_type() == nullptr) continue;
    if (!field->is_repeated()) {
      CopyTables(message.GetReflection()->GetMessage(message, field), tables);
      continue;
    }
    for (int i = 0; i < message.GetReflection()->FieldSize(message, field); ++i) {
      CopyTables(message.GetReflection()->GetRepeatedMessage(message, field, i), tables);
    }
  }
}

inline absl::StatusOr<LogitsPlanPtr> PlanOf(const v1::LogitsSpec& spec,
                                            const LogitsLimits& limits = {}) {
  Tables tables;
  CopyTables(spec, tables);
  return LogitsPlan::Make(spec, tables, limits);
}

inline v1::LogitsSpec Base(int64_t query_length, int64_t key_length,
                           std::optional<int64_t> offset = std::nullopt) {
  v1::LogitsSpec spec;
  spec.set_num_heads(3);
  spec.set_head_dim(5);
  spec.set_query_length(query_length);
  spec.set_key_length(key_length);
  spec.set_alignment(v1::ALIGNMENT_END);
  if (offset.has_value()) spec.set_query_offset(*offset);
  spec.set_direction(v1::DIRECTION_BIDIRECTIONAL);
  return spec;
}

inline v1::RelativeTable Shaw(int64_t left, int64_t right, const v1::TableRef& table) {
  v1::RelativeTable term;
  term.set_left(left);
  term.set_right(right);
  *term.mutable_table() = table;
  return term;
}

inline v1::RelativeTable ShawKeys(int64_t left, int64_t right, int64_t dim,
                                  DataType type = DataType::kF32) {
  return Shaw(left, right, RandomRef(type, {left + right + 1, dim}, 7));
}

inline v1::SinusoidalDistances TransformerXl(int dim, int64_t width,
                                             DataType type = DataType::kF32) {
  v1::SinusoidalDistances term;
  term.mutable_sinusoidal()->set_dim(dim);
  term.mutable_sinusoidal()->set_columns(v1::COLUMNS_SINES_COSINES);
  *term.mutable_projection() = RandomRef(type, {width, dim}, 8);
  return term;
}

// Returns a request over [height, width] grids; `rows` holds the number of rows of each table.
inline v1::LogitsSpec Grids(std::array<int, 2> queries, std::array<int, 2> keys,
                            std::array<int64_t, 2> rows, DataType type = DataType::kF32) {
  v1::LogitsSpec spec = Base(queries[0] * queries[1], keys[0] * keys[1], 0);
  v1::DecomposedRelativePositions& term = *spec.mutable_decomposed_relative_positions();
  *term.mutable_rel_pos_h() = RandomRef(type, {rows[0], spec.head_dim()}, 5);
  *term.mutable_rel_pos_w() = RandomRef(type, {rows[1], spec.head_dim()}, 6);
  term.set_query_height(queries[0]);
  term.set_query_width(queries[1]);
  term.set_key_height(keys[0]);
  term.set_key_width(keys[1]);
  return spec;
}

}  // namespace attnbias
