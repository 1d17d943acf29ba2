// SPDX-License-Identifier: Apache-2.0
// What can be asked for, as plain values with every default filled in. Field
// meanings, units and ranges are those of proto/attnbias/v1; nothing here is
// validated yet.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_TENSOR_SPEC_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_TENSOR_SPEC_H_

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "core/encoding/spec/any_spec.h"
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

struct TableExtent {
  std::optional<Range> positions;
  // One list per axis.
  std::vector<std::vector<int64_t>> position_ids;
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
};

struct GridExtent {
  std::optional<Range> queries;
  std::optional<Range> keys;
  std::optional<Range> heads;
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
};

struct Output {
  std::optional<DataType> data_type;
  std::optional<Form> form;
  // Absent: what the encoding has.
  std::optional<Values> values;
  std::optional<Mask> mask;
  double scale = 1;
};

struct TensorSpec {
  EncodingSpec encoding;
  Extent extent;
  Output output;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_TENSOR_SPEC_H_
