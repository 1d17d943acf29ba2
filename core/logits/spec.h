// SPDX-License-Identifier: Apache-2.0
// What positional logits can be asked for, as plain values. Field meanings,
// units and ranges are those of proto/attnbias/v1/logits.proto; nothing here is
// validated yet.
#ifndef ATTNBIAS_CORE_LOGITS_SPEC_H_
#define ATTNBIAS_CORE_LOGITS_SPEC_H_

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "core/encoding/spec/sinusoidal.h"
#include "core/encoding/spec/tensor_spec.h"
#include "core/tensor/data_type.h"

namespace attnbias {

// A learned table: row-major, each number as it came.
struct Array {
  DataType data_type = DataType::kF32;
  std::vector<int64_t> shape;
  std::vector<double> values;
};

struct RelativeTableSpec {
  std::optional<Array> table;
  std::optional<int64_t> left;
  std::optional<int64_t> right;
};

struct ShawKeysSpec : RelativeTableSpec {};
struct ShawValuesSpec : RelativeTableSpec {};

struct SinusoidalDistancesSpec {
  SinusoidalSpec sinusoidal;
  std::optional<Array> projection;
  std::optional<int64_t> clamp_len;
  bool symmetric = false;
};

struct AbsoluteKeysSpec {
  std::optional<Array> positions;
  std::optional<Array> projection;
};

enum class Direction : uint8_t {
  kLeftToRight = 1,
  kRightToLeft,
  kBidirectional
};

struct LogitsSpec {
  std::variant<std::monostate, ShawKeysSpec, ShawValuesSpec,
               SinusoidalDistancesSpec, AbsoluteKeysSpec>
      term;
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t query_length = 0;
  int64_t key_length = 0;
  // At most one of the two.
  std::optional<Alignment> alignment;
  std::optional<int64_t> query_offset;
  std::optional<Direction> direction;
  DataType data_type = DataType::kF32;
  DataType output_data_type = DataType::kF32;
  MaskFill fill;
  double scale = 1;
  std::optional<Array> query_bias;
  bool bias_alone = false;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_LOGITS_SPEC_H_
