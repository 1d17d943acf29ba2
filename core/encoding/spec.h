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

enum class Interpolation : uint8_t { kNone = 1, kLinear, kLinearAlignCorners };

struct LearnedAbsoluteSpec {
  std::optional<Table> table;
  int64_t offset = 0;
  std::optional<int64_t> padding_idx;
  Interpolation interpolation = Interpolation::kNone;
  std::optional<int64_t> interpolated_length;
};

enum class BeyondReach : uint8_t { kClip = 1, kRefuse };
enum class RelativeSign : uint8_t { kKeyMinusQuery = 1, kQueryMinusKey };

struct ShawSpec {
  std::optional<Table> table;
  std::optional<int64_t> left;
  std::optional<int64_t> right;
  BeyondReach beyond = BeyondReach::kClip;
  RelativeSign sign = RelativeSign::kKeyMinusQuery;
};

struct TransformerXlSpec {
  int64_t dim = 0;
  double base = 10000;
  std::optional<int64_t> clamp_len;
};

enum class XlnetAttention : uint8_t { kBidirectional = 1, kUnidirectional };

struct XlnetSpec {
  int64_t dim = 0;
  double base = 10000;
  std::optional<int64_t> clamp_len;
  XlnetAttention attn_type = XlnetAttention::kBidirectional;
};

struct ConformerSpec {
  int64_t dim = 0;
  double base = 10000;
};

struct SymmetricSinusoidalSpec {
  int64_t dim = 0;
  double base = 10000;
  SinusoidalLayout layout = SinusoidalLayout::kInterleaved;
};

struct LearnedRelativeSpec {
  std::optional<Table> table;
  int64_t num_heads = 0;
  std::optional<int64_t> left;
  std::optional<int64_t> right;
  bool symmetric = false;
  BeyondReach beyond = BeyondReach::kClip;
};

enum class KerpleKernel : uint8_t { kLog = 1, kPower };

struct KerpleSpec {
  std::optional<KerpleKernel> kernel;
  std::vector<double> p;
  std::vector<double> a;
  int64_t num_heads = 0;
};

struct SandwichSpec {
  int64_t num_heads = 0;
  int64_t dim = 128;
  double base = 10000;
};

struct FireSpec {
  int64_t num_heads = 0;
  double c = 0.1;
  double threshold = 512;
  double eps = 1e-6;
  std::optional<Table> hidden_weight;
  std::optional<Table> hidden_bias;
  std::optional<Table> output_weight;
  std::optional<Table> output_bias;
};

struct PositionMlpLayer {
  std::optional<Table> weight;
  std::optional<Table> bias;
  std::optional<Table> norm_weight;
  std::optional<Table> norm_bias;
};

struct DynamicPositionBiasSpec {
  int64_t num_heads = 0;
  bool log_distance = false;
  std::vector<PositionMlpLayer> layers;
};

enum class DebertaTerm : uint8_t {
  kContentToPosition = 1,
  kPositionToContent,
  kBucket
};
enum class DebertaEdge : uint8_t { kMicrosoft = 1, kHf };

struct DebertaSpec {
  int64_t bucket_size = 256;
  int64_t max_position = 512;
  DebertaTerm term = DebertaTerm::kContentToPosition;
  DebertaEdge edge = DebertaEdge::kMicrosoft;
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

enum class RotaryLayout : uint8_t { kHalf = 1, kInterleaved, kCompact };

enum class RopeType : uint8_t {
  kDefault = 1,
  kLinear,
  kDynamic,
  kNtk,
  kYarn,
  kLongrope,
  kLlama3,
  kProportional
};

enum class MropeOrder : uint8_t { kChunked = 1, kInterleaved, kAxial };

enum class AnglePrecision : uint8_t { kExact = 1, kFloat32 };

// Of what is optional here, a rope_type uses some; the rest must be absent.
struct RotarySpec {
  int64_t head_dim = 0;
  std::optional<double> rope_theta;
  double partial_rotary_factor = 1;
  RotaryLayout layout = RotaryLayout::kHalf;
  RopeType rope_type = RopeType::kDefault;
  std::optional<double> factor;
  std::optional<int64_t> max_position_embeddings;
  std::optional<int64_t> original_max_position_embeddings;
  std::optional<int64_t> sequence_length;
  std::optional<double> beta_fast;
  std::optional<double> beta_slow;
  std::optional<double> mscale;
  std::optional<double> mscale_all_dim;
  std::optional<bool> truncate;
  std::optional<double> attention_factor;
  std::vector<double> short_factor;
  std::vector<double> long_factor;
  std::optional<double> low_freq_factor;
  std::optional<double> high_freq_factor;
  std::vector<int64_t> mrope_section;
  MropeOrder mrope_order = MropeOrder::kChunked;
  AnglePrecision angle = AnglePrecision::kExact;
  std::vector<double> inverse_frequencies;

  static constexpr double kRopeTheta = 10000;
  static constexpr double kBetaFast = 32;
  static constexpr double kBetaSlow = 1;
};

struct XposSpec {
  int64_t dim = 0;
  double rope_theta = 10000;
  double scale_base = 512;
  double gamma = 0.4;
  std::optional<int64_t> sequence_length;
  RotaryLayout layout = RotaryLayout::kHalf;
};

enum class MultiAxisLayout : uint8_t {
  kTensor2Tensor = 1,
  kInterleaved,
  kConcatenated
};

struct MultiAxisSinusoidalSpec {
  int64_t dim = 0;
  int64_t num_axes = 0;
  std::optional<MultiAxisLayout> layout;
  double base = 10000;
  double min_timescale = 1;
  double max_timescale = 10000;
};

// One row per encoding.
using EncodingSpec = std::variant<SinusoidalSpec,           //
                                  T5Spec,                   //
                                  AlibiSpec,                //
                                  LearnedAbsoluteSpec,      //
                                  ShawSpec,                 //
                                  TransformerXlSpec,        //
                                  XlnetSpec,                //
                                  ConformerSpec,            //
                                  SymmetricSinusoidalSpec,  //
                                  LearnedRelativeSpec,      //
                                  KerpleSpec,               //
                                  SandwichSpec,             //
                                  FireSpec,                 //
                                  DynamicPositionBiasSpec,  //
                                  DebertaSpec,              //
                                  SwinSpec,                 //
                                  SwinV2Spec,               //
                                  BeitSpec,                 //
                                  RotarySpec,               //
                                  XposSpec,                 //
                                  MultiAxisSinusoidalSpec,  //
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

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_H_
