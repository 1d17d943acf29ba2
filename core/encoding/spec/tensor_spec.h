// SPDX-License-Identifier: Apache-2.0
// What can be asked for, as plain values with every default filled in. Field
// meanings, units and ranges are those of proto/attnbias/v1; nothing here is
// validated yet.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_TENSOR_SPEC_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_TENSOR_SPEC_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "core/encoding/spec/any_spec.h"
#include "core/encoding/spec/field.h"
#include "core/encoding/spec/limits.h"
#include "core/tensor/data_type.h"
#include "core/tensor/range.h"

namespace attnbias {

enum class Form : uint8_t {
  kTable = 1,
  kToeplitz,
  kKeyRow,
  kDense,
  kBlockToeplitz2D
};
enum class Values : uint8_t { kBias = 1, kBuckets };
enum class Alignment : uint8_t { kStart = 1, kEnd };

template <>
inline constexpr std::array<std::string_view, 5> kEnumNames<Form> = {
    "TABLE", "TOEPLITZ", "KEY_ROW", "DENSE", "BLOCK_TOEPLITZ_2D"};
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<Values> = {
    "BIAS", "BUCKETS"};
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<Alignment> = {
    "START", "END"};
template <>
inline constexpr std::array<std::string_view, 5> kEnumNames<DataType> =
    kDataTypeNames;

struct TableExtent {
  std::optional<Range> positions;
  // One list per axis.
  std::vector<std::vector<int64_t>> position_ids;

  FieldList Fields() {
    return {Field(1, "positions", positions),
            Field(2, "position_ids", position_ids).AtMost(kMaxAxes)};
  }
};

struct PairExtent {
  int64_t query_length = 0;
  int64_t key_length = 0;
  // At most one of the two.
  std::optional<Alignment> alignment;
  std::optional<int64_t> query_offset;
  std::optional<Range> queries;
  std::optional<Range> keys;
  std::optional<Range> heads;
  std::optional<std::vector<int64_t>> query_positions;
  std::optional<std::vector<int64_t>> key_positions;

  FieldList Fields() {
    return {Field(1, "query_length", query_length),
            Field(2, "key_length", key_length),
            Field(3, "alignment", alignment),
            Field(4, "query_offset", query_offset),
            Field(5, "queries", queries),
            Field(6, "keys", keys),
            Field(7, "heads", heads),
            Field(8, "query_positions", query_positions),
            Field(9, "key_positions", key_positions)};
  }
};

struct GridExtent {
  std::optional<Range> queries;
  std::optional<Range> keys;
  std::optional<Range> heads;

  FieldList Fields() {
    return {Field(1, "queries", queries), Field(2, "keys", keys),
            Field(3, "heads", heads)};
  }
};

using Extent =
    std::variant<std::monostate, TableExtent, PairExtent, GridExtent>;

struct Lowest {
  friend bool operator==(Lowest, Lowest) = default;
};

// Absent: negative infinity.
using MaskFill = std::variant<std::monostate, double, Lowest>;

struct Mask {
  bool causal = false;
  std::optional<int64_t> window_left;
  std::optional<int64_t> window_right;
  MaskFill fill;

  // All but the fill.
  FieldList Fields() {
    return {Field(1, "causal", causal), Field(2, "window_left", window_left),
            Field(3, "window_right", window_right)};
  }
};

struct Output {
  std::optional<DataType> data_type;
  std::optional<Form> form;
  // Absent: what the encoding has.
  std::optional<Values> values;
  std::optional<Mask> mask;
  double scale = 1;

  FieldList Fields() {
    return {Field(1, "data_type", data_type), Field(2, "form", form),
            Field(3, "values", values), Field(4, "mask", mask),
            Field(5, "scale", scale)};
  }
};

struct TensorSpec {
  EncodingSpec encoding;
  Extent extent;
  Output output;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_TENSOR_SPEC_H_
