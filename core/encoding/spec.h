// SPDX-License-Identifier: Apache-2.0
// What can be asked for, as plain values with every default filled in. Field
// meanings, units and ranges are those of proto/attnbias/v1; nothing here is
// validated yet.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/table/table.h"
#include "core/tensor/data_type.h"
#include "core/tensor/range.h"

namespace attnbias {

enum class SinusoidalLayout : uint8_t {
  kInterleaved = 1,
  kConcatenated,
  kTensor2Tensor
};

struct SinusoidalSpec {
  int64_t dim = 0;
  double base = 10000;
  SinusoidalLayout layout = SinusoidalLayout::kInterleaved;
  double min_timescale = 1;
  double max_timescale = 10000;
};

enum class BucketRule : uint8_t { kExact = 1, kFloat32Log };

struct T5Spec {
  int64_t num_heads = 0;
  int64_t num_buckets = 32;
  int64_t max_distance = 128;
  std::optional<bool> bidirectional;
  std::optional<Table> table;
  BucketRule bucket_rule = BucketRule::kExact;
};

enum class AlibiVariant : uint8_t {
  kSymmetric = 1,
  kCausal,
  kKeyFromStart,
  kKeyFromEnd
};

struct AlibiSpec {
  int64_t num_heads = 0;
  double alibi_bias_max = 8;
  std::vector<double> slopes;
  AlibiVariant variant = AlibiVariant::kSymmetric;
};

struct SwinSpec {
  int64_t window_height = 0;
  int64_t window_width = 0;
  int64_t num_heads = 0;
  std::optional<Table> table;
};

struct SwinV2Spec {
  int64_t window_height = 0;
  int64_t window_width = 0;
  int64_t num_heads = 0;
  // Absent: the window's own.
  std::optional<int64_t> pretrained_window_height;
  std::optional<int64_t> pretrained_window_width;
  std::optional<Table> hidden_weight;
  std::optional<Table> hidden_bias;
  std::optional<Table> output_weight;
};

struct BeitSpec {
  int64_t window_height = 0;
  int64_t window_width = 0;
  int64_t num_heads = 0;
  std::optional<Table> table;
};

struct TupeSpec {
  int64_t num_heads = 0;
  std::optional<Table> relative_table;
  int64_t num_buckets = 32;
  int64_t max_distance = 128;
  std::optional<Table> position_table;
  std::optional<Table> query_weight;
  std::optional<Table> query_bias;
  std::optional<Table> key_weight;
  std::optional<Table> key_bias;
  std::optional<Table> norm_weight;
  std::optional<Table> norm_bias;
  double norm_eps = 1e-5;
  bool reset_class_token = false;
  // Absent: 1 / sqrt(2 d_model / num_heads).
  std::optional<double> position_scale;
};

// One row per encoding.
using EncodingSpec = std::variant<SinusoidalSpec,  //
                                  T5Spec,          //
                                  AlibiSpec,       //
                                  SwinSpec,        //
                                  SwinV2Spec,      //
                                  BeitSpec,        //
                                  TupeSpec>;

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

struct Mask {
  bool causal = false;
  std::optional<int64_t> window_left;
  std::optional<int64_t> window_right;
  // Absent: negative infinity.
  std::variant<std::monostate, double, Lowest> fill;
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

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_H_
