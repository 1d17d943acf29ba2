// SPDX-License-Identifier: Apache-2.0
// Builds requests and the tables that they name.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "attnbias/v1/service.pb.h"
#include "core/request/rules.h"
#include "core/table/table.h"
#include "core/tensor/data_type.h"
#include "core/tensor/positions.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/unit/support/status_matchers.h"

namespace attnbias {

// Parses protobuf's text format: Parse<v1::Alibi>("num_heads: 8").
template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

// Returns a spec for an encoding, or a spec unchanged.
template <typename Encoding>
v1::TensorSpec SpecOf(const Encoding& encoding) {
  v1::TensorSpec spec;
  if constexpr (std::is_same_v<Encoding, v1::TensorSpec>) {
    spec = encoding;
  } else {
    const auto& oneof = *v1::TensorSpec::descriptor()->FindOneofByName("encoding");
    for (int i = 0; i < oneof.field_count(); ++i) {
      if (oneof.field(i)->message_type() != Encoding::descriptor()) continue;
      spec.GetReflection()->MutableMessage(&spec, oneof.field(i))->CopyFrom(encoding);
    }
  }
  return spec;
}

// Adds fields to a spec: With(alibi, "pair {query_length: 4 key_length: 4}").
template <typename Encoding>
v1::TensorSpec With(const Encoding& encoding, const std::string& rest) {
  v1::TensorSpec spec = SpecOf(encoding);
  spec.MergeFrom(Parse<v1::TensorSpec>(rest));
  return spec;
}

// Adds fields to a spec's output: WithOutput(alibi, "form: FORM_DENSE").
template <typename Encoding>
v1::TensorSpec WithOutput(const Encoding& encoding, const std::string& output) {
  return With(encoding, "output {" + output + "}");
}

// Fields of an Output in text format.
inline std::string Scaled(double scale) { return absl::StrFormat("scale: %.17g ", scale); }
inline std::string Typed(DataType type) {
  return absl::StrCat("data_type: DATA_TYPE_", std::string(NameOf(type)), " ");
}
inline constexpr char kBuckets[] = "values: VALUES_BUCKETS ";
inline constexpr char kDense[] = "form: FORM_DENSE ";

// Holds every table to which a test refers.
inline Tables& TestTables() {
  static auto& tables = *new Tables;
  return tables;
}

inline v1::TableRef Ref(const Table& table) { return TestTables().Add(table); }

// Returns a message with the defaults that the contract states.
template <typename Message>
Message Completed(Message message) {
  EXPECT_THAT(Complete("", false, TestTables(), message), IsOk());
  return message;
}

// Returns the table for a reference that Ref returned.
inline Table TableAt(const v1::TableRef& ref) { return *TestTables().Get(ref); }

// Makes a table of F64, or of F32 with T = float. Rounds values that the table's type cannot
// represent.
template <typename T = double>
Table TableOf(const std::vector<int64_t>& shape, const std::vector<double>& values) {
  const std::vector<T> numbers(values.begin(), values.end());
  return *Table::Create(sizeof(T) == 8 ? DataType::kF64 : DataType::kF32, shape,
                        {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)},
                        TableLayout::kBucketsHeads);
}

// Returns normally distributed doubles.
inline std::vector<double> Normals(int64_t count) {
  std::mt19937_64 random(9);
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& value : values) value = normal(random);
  return values;
}

// Makes a table of normally distributed F32 numbers.
inline Table RandomTable(const std::vector<int64_t>& shape, uint32_t seed, float deviation = 1) {
  int64_t size = 1;
  for (const int64_t length : shape) size *= length;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<double> values(size);
  for (double& value : values) value = normal(random);
  return TableOf<float>(shape, values);
}

inline v1::TableRef RandomRef(const std::vector<int64_t>& shape, uint32_t seed,
                              float deviation = 1) {
  return Ref(RandomTable(shape, seed, deviation));
}

// Sets fields, and replaces tables with random ones of the given shapes:
// Changed(fire, "num_heads: 4", {{"hidden_bias", {3}}}). An empty shape clears a table.
template <typename Message>
Message Changed(Message message, const std::string& fields,
                const std::vector<std::pair<std::string, std::vector<int64_t>>>& tables = {}) {
  EXPECT_TRUE(google::protobuf::TextFormat::MergeFromString(fields, &message)) << fields;
  for (const auto& [name, shape] : tables) {
    const auto* field = Message::descriptor()->FindFieldByName(name);
    if (shape.empty()) {
      message.GetReflection()->ClearField(&message, field);
    } else {
      message.GetReflection()->MutableMessage(&message, field)->CopyFrom(RandomRef(shape, 1));
    }
  }
  return message;
}

inline v1::Range RangeOf(int64_t begin, int64_t end) {
  v1::Range range;
  range.set_begin(begin);
  range.set_end(end);
  return range;
}

// Adds an extent to a spec.
inline v1::TensorSpec OverPairs(v1::TensorSpec spec, int64_t query_length, int64_t key_length,
                                int64_t query_offset = 0) {
  spec.mutable_pair()->set_query_length(query_length);
  spec.mutable_pair()->set_key_length(key_length);
  spec.mutable_pair()->set_query_offset(query_offset);
  return spec;
}

inline v1::TensorSpec AtPairs(v1::TensorSpec spec, const std::vector<int64_t>& queries,
                              const std::vector<int64_t>& keys) {
  v1::PairExtent& pair = *spec.mutable_pair();
  pair.mutable_query_positions()->mutable_positions()->Add(queries.begin(), queries.end());
  pair.mutable_key_positions()->mutable_positions()->Add(keys.begin(), keys.end());
  return spec;
}

inline v1::TensorSpec OverPositions(v1::TensorSpec spec, int64_t begin, int64_t end) {
  *spec.mutable_table()->mutable_positions() = RangeOf(begin, end);
  return spec;
}

// Adds one list for each axis.
inline v1::TensorSpec AtPositions(v1::TensorSpec spec,
                                  const std::vector<std::vector<int64_t>>& lists) {
  for (const std::vector<int64_t>& list : lists) {
    spec.mutable_table()->add_position_ids()->mutable_positions()->Add(list.begin(), list.end());
  }
  return spec;
}

inline v1::TensorSpec OverGrid(v1::TensorSpec spec, const std::vector<int64_t>& lengths,
                               const std::vector<int64_t>& offset = {}) {
  v1::TableExtent& table = *spec.mutable_table();
  table.mutable_grid()->Add(lengths.begin(), lengths.end());
  table.mutable_grid_offset()->Add(offset.begin(), offset.end());
  return spec;
}

}  // namespace attnbias
