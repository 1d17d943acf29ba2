// SPDX-License-Identifier: Apache-2.0
#include "server/codec/spec_codec.h"

#include <limits>
#include <string>

#include "absl/strings/numbers.h"
#include "attnbias/v1/options.pb.h"
#include "core/encoding/spec/sinusoidal.h"
#include "core/encoding/spec/t5.h"
#include "core/kernel/kernel_set.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/testing/safetensors_writer.h"
#include "tests/testing/status_matchers.h"

namespace attnbias::spec_codec_test {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::HasSubstr;
using testing::StartsWith;

v1::TensorSpec Wire(const std::string& text) {
  v1::TensorSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec));
  return spec;
}

// Without mounted tables.
absl::StatusOr<TensorSpec> DecodeSpec(const v1::TensorSpec& spec) {
  return DecodeSpec(spec, TableSet());
}

TensorSpec Decoded(const v1::TensorSpec& wire) {
  const absl::StatusOr<TensorSpec> spec = DecodeSpec(wire);
  EXPECT_THAT(spec, IsOk());
  return spec.value_or(TensorSpec());
}

TensorSpec Decoded(const std::string& text) { return Decoded(Wire(text)); }

struct RoundTrip {
  const char* name;
  const char* request;
  // With the defaults written out.
  const char* resolved;
};

class SpecCodec : public testing::TestWithParam<RoundTrip> {};

TEST_P(SpecCodec, WritesOutDefaultsAndKeepsTheRest) {
  const v1::TensorSpec once = EncodeSpec(Decoded(GetParam().request));
  EXPECT_TRUE(MessageDifferencer::Equals(once, Wire(GetParam().resolved)))
      << once.DebugString();
  const v1::TensorSpec twice = EncodeSpec(Decoded(once));
  EXPECT_TRUE(MessageDifferencer::Equals(once, twice)) << twice.DebugString();
}

INSTANTIATE_TEST_SUITE_P(
    Encodings, SpecCodec,
    testing::Values(
        RoundTrip{"Sinusoidal", "sinusoidal { dim: 6 }",
                  "sinusoidal { dim: 6 base: 10000 "
                  "layout: SINUSOIDAL_LAYOUT_INTERLEAVED } "
                  "output { scale: 1 }"},
        RoundTrip{"Tensor2Tensor",
                  "sinusoidal { dim: 6 min_timescale: 2 "
                  "layout: SINUSOIDAL_LAYOUT_TENSOR2TENSOR }",
                  "sinusoidal { dim: 6 min_timescale: 2 max_timescale: 10000 "
                  "layout: SINUSOIDAL_LAYOUT_TENSOR2TENSOR } "
                  "output { scale: 1 }"},
        RoundTrip{"T5",
                  "t5 { bidirectional: false } "
                  "output { values: VALUES_BUCKETS }",
                  "t5 { num_buckets: 32 max_distance: 128 bidirectional: false "
                  "bucket_rule: BUCKET_RULE_EXACT } "
                  "output { values: VALUES_BUCKETS scale: 1 }"},
        RoundTrip{"Alibi", "alibi { num_heads: 4 }",
                  "alibi { num_heads: 4 alibi_bias_max: 8 "
                  "variant: ALIBI_VARIANT_SYMMETRIC } "
                  "output { scale: 1 }"},
        RoundTrip{"Swin", "swin { window_height: 2 window_width: 3 }",
                  "swin { window_height: 2 window_width: 3 } "
                  "output { scale: 1 }"},
        RoundTrip{"SwinV2",
                  "swin_v2 { window_height: 2 window_width: 3 num_heads: 4 "
                  "pretrained_window_width: 5 }",
                  "swin_v2 { window_height: 2 window_width: 3 num_heads: 4 "
                  "pretrained_window_height: 2 pretrained_window_width: 5 } "
                  "output { scale: 1 }"},
        RoundTrip{"Beit",
                  "beit { window_height: 2 window_width: 3 num_heads: 1 }",
                  "beit { window_height: 2 window_width: 3 num_heads: 1 } "
                  "output { scale: 1 }"},
        RoundTrip{"Tupe",
                  "tupe { reset_class_token: true } "
                  "output { values: VALUES_BUCKETS }",
                  "tupe { num_buckets: 32 max_distance: 128 "
                  "reset_class_token: true } "
                  "output { values: VALUES_BUCKETS scale: 1 }"},
        RoundTrip{"AlibiSlopes",
                  "alibi { num_heads: 2 slopes: [0.5, 0.25] "
                  "variant: ALIBI_VARIANT_KEY_FROM_END }",
                  "alibi { num_heads: 2 slopes: [0.5, 0.25] "
                  "variant: ALIBI_VARIANT_KEY_FROM_END } "
                  "output { scale: 1 }"},
        RoundTrip{"Shaw",
                  "shaw { left: 0 right: 3 } "
                  "output { values: VALUES_BUCKETS }",
                  "shaw { left: 0 right: 3 beyond: BEYOND_REACH_CLIP "
                  "sign: RELATIVE_SIGN_KEY_MINUS_QUERY } "
                  "output { values: VALUES_BUCKETS scale: 1 }"},
        RoundTrip{"ShawOtherwise",
                  "shaw { beyond: BEYOND_REACH_REFUSE "
                  "sign: RELATIVE_SIGN_QUERY_MINUS_KEY }",
                  "shaw { beyond: BEYOND_REACH_REFUSE "
                  "sign: RELATIVE_SIGN_QUERY_MINUS_KEY } "
                  "output { scale: 1 }"},
        RoundTrip{"TransformerXl", "transformer_xl { dim: 6 }",
                  "transformer_xl { dim: 6 base: 10000 } "
                  "output { scale: 1 }"},
        RoundTrip{"TransformerXlClamped",
                  "transformer_xl { dim: 6 base: 9 clamp_len: 5 }",
                  "transformer_xl { dim: 6 base: 9 clamp_len: 5 } "
                  "output { scale: 1 }"},
        RoundTrip{"Xlnet", "xlnet { dim: 6 }",
                  "xlnet { dim: 6 base: 10000 "
                  "attn_type: XLNET_ATTENTION_BIDIRECTIONAL } "
                  "output { scale: 1 }"},
        RoundTrip{"XlnetOtherwise",
                  "xlnet { dim: 6 base: 9 clamp_len: 5 "
                  "attn_type: XLNET_ATTENTION_UNIDIRECTIONAL }",
                  "xlnet { dim: 6 base: 9 clamp_len: 5 "
                  "attn_type: XLNET_ATTENTION_UNIDIRECTIONAL } "
                  "output { scale: 1 }"},
        RoundTrip{"Conformer", "conformer { dim: 6 }",
                  "conformer { dim: 6 base: 10000 } "
                  "output { scale: 1 }"},
        RoundTrip{"SymmetricSinusoidal", "symmetric_sinusoidal { dim: 6 }",
                  "symmetric_sinusoidal { dim: 6 base: 10000 "
                  "layout: SINUSOIDAL_LAYOUT_INTERLEAVED } "
                  "output { scale: 1 }"},
        RoundTrip{"LearnedAbsolute", "learned_absolute { }",
                  "learned_absolute { offset: 0 "
                  "interpolation: INTERPOLATION_NONE } "
                  "output { scale: 1 }"},
        RoundTrip{"LearnedAbsoluteOtherwise",
                  "learned_absolute { offset: 2 "
                  "interpolation: INTERPOLATION_LINEAR "
                  "interpolated_length: 7 }",
                  "learned_absolute { offset: 2 "
                  "interpolation: INTERPOLATION_LINEAR "
                  "interpolated_length: 7 } "
                  "output { scale: 1 }"},
        RoundTrip{"LearnedAbsolutePadded",
                  "learned_absolute { padding_idx: 0 }",
                  "learned_absolute { offset: 0 padding_idx: 0 "
                  "interpolation: INTERPOLATION_NONE } "
                  "output { scale: 1 }"},
        RoundTrip{"Rotary", "rotary { head_dim: 64 }",
                  "rotary { head_dim: 64 rope_theta: 10000 "
                  "partial_rotary_factor: 1 layout: ROTARY_LAYOUT_HALF "
                  "rope_type: ROPE_TYPE_DEFAULT "
                  "angle: ANGLE_PRECISION_EXACT } "
                  "output { scale: 1 }"},
        RoundTrip{"RotaryGiven",
                  "rotary { head_dim: 4 inverse_frequencies: [1, 0.25] "
                  "mrope_section: [1, 1] angle: ANGLE_PRECISION_FLOAT32 }",
                  "rotary { head_dim: 4 partial_rotary_factor: 1 "
                  "layout: ROTARY_LAYOUT_HALF rope_type: ROPE_TYPE_DEFAULT "
                  "mrope_section: [1, 1] mrope_order: MROPE_ORDER_CHUNKED "
                  "angle: ANGLE_PRECISION_FLOAT32 "
                  "inverse_frequencies: [1, 0.25] } "
                  "output { scale: 1 }"},
        RoundTrip{"Xpos", "xpos { dim: 4 sequence_length: 9 gamma: 0.5 }",
                  "xpos { dim: 4 rope_theta: 10000 scale_base: 512 gamma: 0.5 "
                  "sequence_length: 9 layout: ROTARY_LAYOUT_HALF } "
                  "output { scale: 1 }"},
        RoundTrip{"MultiAxisSinusoidal",
                  "multi_axis_sinusoidal { dim: 8 num_axes: 2 "
                  "layout: MULTI_AXIS_LAYOUT_CONCATENATED }",
                  "multi_axis_sinusoidal { dim: 8 num_axes: 2 base: 10000 "
                  "layout: MULTI_AXIS_LAYOUT_CONCATENATED } "
                  "output { scale: 1 }"},
        RoundTrip{"MultiAxisFractions",
                  "multi_axis_sinusoidal { dim: 8 num_axes: 2 "
                  "layout: MULTI_AXIS_LAYOUT_INTERLEAVED "
                  "axis_lengths: [37, 50] axis_offset: -0.5 }",
                  "multi_axis_sinusoidal { dim: 8 num_axes: 2 base: 10000 "
                  "layout: MULTI_AXIS_LAYOUT_INTERLEAVED "
                  "axis_lengths: [37, 50] axis_scale: 6.283185307179586 "
                  "axis_eps: 1e-6 axis_offset: -0.5 } "
                  "output { scale: 1 }"},
        RoundTrip{"MultiAxisTensor2Tensor",
                  "multi_axis_sinusoidal { dim: 9 num_axes: 2 "
                  "min_timescale: 2 "
                  "layout: MULTI_AXIS_LAYOUT_TENSOR2TENSOR }",
                  "multi_axis_sinusoidal { dim: 9 num_axes: 2 "
                  "min_timescale: 2 max_timescale: 10000 "
                  "layout: MULTI_AXIS_LAYOUT_TENSOR2TENSOR } "
                  "output { scale: 1 }"},
        RoundTrip{"Yarn",
                  "rotary { head_dim: 4 rope_type: ROPE_TYPE_YARN factor: 4 "
                  "original_max_position_embeddings: 32768 mscale: 0.5 "
                  "mscale_all_dim: 1 }",
                  "rotary { head_dim: 4 rope_theta: 10000 "
                  "partial_rotary_factor: 1 layout: ROTARY_LAYOUT_HALF "
                  "rope_type: ROPE_TYPE_YARN factor: 4 "
                  "original_max_position_embeddings: 32768 beta_fast: 32 "
                  "beta_slow: 1 mscale: 0.5 mscale_all_dim: 1 truncate: true "
                  "angle: ANGLE_PRECISION_EXACT } "
                  "output { scale: 1 }"},
        RoundTrip{
            "Longrope",
            "rotary { head_dim: 2 rope_type: ROPE_TYPE_LONGROPE "
            "rope_theta: 5 partial_rotary_factor: 0.5 attention_factor: 2 "
            "max_position_embeddings: 7 sequence_length: 8 "
            "original_max_position_embeddings: 9 short_factor: 1 "
            "long_factor: 3 layout: ROTARY_LAYOUT_COMPACT }",
            "rotary { head_dim: 2 rope_type: ROPE_TYPE_LONGROPE "
            "rope_theta: 5 partial_rotary_factor: 0.5 attention_factor: 2 "
            "max_position_embeddings: 7 sequence_length: 8 "
            "original_max_position_embeddings: 9 short_factor: 1 "
            "long_factor: 3 layout: ROTARY_LAYOUT_COMPACT "
            "angle: ANGLE_PRECISION_EXACT } "
            "output { scale: 1 }"},
        RoundTrip{"Llama3",
                  "rotary { head_dim: 2 rope_type: ROPE_TYPE_LLAMA3 "
                  "low_freq_factor: 1 high_freq_factor: 4 }",
                  "rotary { head_dim: 2 rope_theta: 10000 "
                  "partial_rotary_factor: 1 layout: ROTARY_LAYOUT_HALF "
                  "rope_type: ROPE_TYPE_LLAMA3 low_freq_factor: 1 "
                  "high_freq_factor: 4 angle: ANGLE_PRECISION_EXACT } "
                  "output { scale: 1 }"},
        RoundTrip{"LearnedRelative",
                  "learned_relative { left: 0 right: 3 } "
                  "output { values: VALUES_BUCKETS }",
                  "learned_relative { num_heads: 0 left: 0 right: 3 "
                  "symmetric: false beyond: BEYOND_REACH_CLIP } "
                  "output { values: VALUES_BUCKETS scale: 1 }"},
        RoundTrip{"LearnedRelativeSymmetric",
                  "learned_relative { right: 0 symmetric: true "
                  "beyond: BEYOND_REACH_REFUSE }",
                  "learned_relative { right: 0 symmetric: true "
                  "beyond: BEYOND_REACH_REFUSE } "
                  "output { scale: 1 }"},
        RoundTrip{"Kerple",
                  "kerple { kernel: KERPLE_KERNEL_POWER p: [1, 2] a: 0.5 "
                  "num_heads: 2 }",
                  "kerple { kernel: KERPLE_KERNEL_POWER p: [1, 2] a: 0.5 "
                  "num_heads: 2 } output { scale: 1 }"},
        RoundTrip{"Sandwich", "sandwich { num_heads: 2 }",
                  "sandwich { num_heads: 2 dim: 128 base: 10000 } "
                  "output { scale: 1 }"},
        RoundTrip{"Fire", "fire { num_heads: 2 eps: 0 }",
                  "fire { num_heads: 2 c: 0.1 threshold: 512 eps: 0 } "
                  "output { scale: 1 }"},
        RoundTrip{"DynamicPositionBias",
                  "dynamic_position_bias { num_heads: 2 log_distance: true "
                  "layers {} }",
                  "dynamic_position_bias { num_heads: 2 log_distance: true "
                  "layers {} } output { scale: 1 }"},
        RoundTrip{"Deberta", "deberta {} ",
                  "deberta { bucket_size: 256 max_position: 512 "
                  "term: DEBERTA_TERM_CONTENT_TO_POSITION "
                  "edge: DEBERTA_EDGE_MICROSOFT "
                  "bucket_rule: BUCKET_RULE_EXACT } "
                  "output { scale: 1 }"},
        RoundTrip{"DebertaHf",
                  "deberta { bucket_size: 4 max_position: 9 "
                  "term: DEBERTA_TERM_BUCKET edge: DEBERTA_EDGE_HF "
                  "bucket_rule: BUCKET_RULE_FLOAT32_LOG }",
                  "deberta { bucket_size: 4 max_position: 9 "
                  "term: DEBERTA_TERM_BUCKET edge: DEBERTA_EDGE_HF "
                  "bucket_rule: BUCKET_RULE_FLOAT32_LOG } "
                  "output { scale: 1 }"}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Extents, SpecCodec,
    testing::Values(
        RoundTrip{
            "Positions",
            "sinusoidal { dim: 2 } table { positions { begin: 3 end: 9 } }",
            "sinusoidal { dim: 2 base: 10000 "
            "layout: SINUSOIDAL_LAYOUT_INTERLEAVED } "
            "table { positions { begin: 3 end: 9 } } "
            "output { scale: 1 }"},
        RoundTrip{"PositionIds",
                  "sinusoidal { dim: 2 } table { position_ids { positions: "
                  "[5, -1] } }",
                  "sinusoidal { dim: 2 base: 10000 "
                  "layout: SINUSOIDAL_LAYOUT_INTERLEAVED } "
                  "table { position_ids { positions: [5, -1] } } "
                  "output { scale: 1 }"},
        RoundTrip{"Pair",
                  "alibi { num_heads: 4 } pair { query_length: 2 key_length: 9 "
                  "alignment: ALIGNMENT_END queries { begin: 1 end: 2 } "
                  "keys { end: 4 } heads { begin: 1 end: 3 } } "
                  "output { data_type: DATA_TYPE_BF16 form: FORM_DENSE "
                  "scale: 0.5 mask { causal: true window_left: 0 "
                  "fill_lowest: true } }",
                  "alibi { num_heads: 4 alibi_bias_max: 8 "
                  "variant: ALIBI_VARIANT_SYMMETRIC } "
                  "pair { query_length: 2 key_length: 9 "
                  "alignment: ALIGNMENT_END queries { begin: 1 end: 2 } "
                  "keys { begin: 0 end: 4 } heads { begin: 1 end: 3 } } "
                  "output { data_type: DATA_TYPE_BF16 form: FORM_DENSE "
                  "scale: 0.5 "
                  "mask { causal: true window_left: 0 fill_lowest: true } }"},
        RoundTrip{
            "Grid",
            "beit { window_height: 2 } grid { queries { end: 1 } "
            "keys { begin: 2 end: 3 } heads { begin: 1 end: 2 } }",
            "beit { window_height: 2 } grid { queries { begin: 0 end: 1 } "
            "keys { begin: 2 end: 3 } heads { begin: 1 end: 2 } } "
            "output { scale: 1 }"},
        RoundTrip{"Lists",
                  "alibi { num_heads: 4 } pair { query_offset: 0 "
                  "query_length: 1 key_positions { positions: [9, 2] } } "
                  "output { mask { fill_value: -1e4 window_right: 3 } }",
                  "alibi { num_heads: 4 alibi_bias_max: 8 "
                  "variant: ALIBI_VARIANT_SYMMETRIC } "
                  "pair { query_offset: 0 query_length: 1 "
                  "key_positions { positions: [9, 2] } } "
                  "output { scale: 1 "
                  "mask { fill_value: -1e4 window_right: 3 } }"}),
    [](const auto& info) { return std::string(info.param.name); });

// What the contract says a field's default is, as its JSON value.
std::string DefaultInContract(const google::protobuf::FieldDescriptor& field) {
  return field.options().GetExtension(v1::rule).default_();
}

// What the codec resolved the field to, likewise; empty where it left it out.
std::string Resolved(const google::protobuf::Message& message,
                     const google::protobuf::FieldDescriptor& field) {
  const auto* reflection = message.GetReflection();
  if (field.enum_type() != nullptr) {
    const auto* value = reflection->GetEnum(message, &field);
    return value->number() == 0 ? "" : std::string(value->name());
  }
  if (!reflection->HasField(message, &field)) return "";
  std::string text;
  google::protobuf::TextFormat::PrintFieldValueToString(message, &field, -1,
                                                        &text);
  return text;
}

TEST(DecodeSpec, DefaultsAreThoseOfTheContract) {
  const auto* oneof = v1::TensorSpec::descriptor()->FindOneofByName("encoding");
  for (int i = 0; i < oneof->field_count(); ++i) {
    v1::TensorSpec empty;
    empty.GetReflection()->MutableMessage(&empty, oneof->field(i));
    const absl::StatusOr<TensorSpec> spec = DecodeSpec(empty);
    if (spec.status().code() == absl::StatusCode::kUnimplemented) continue;
    ASSERT_THAT(spec, IsOk());
    const v1::TensorSpec wire = EncodeSpec(*spec);
    const auto& message =
        wire.GetReflection()->GetMessage(wire, oneof->field(i));
    for (int j = 0; j < message.GetDescriptor()->field_count(); ++j) {
      const auto& field = *message.GetDescriptor()->field(j);
      const std::string wanted = DefaultInContract(field);
      if (wanted.empty()) continue;
      const std::string resolved = Resolved(message, field);
      if (resolved.empty()) continue;
      double a = 0;
      double b = 0;
      const bool numbers =
          absl::SimpleAtod(resolved, &a) && absl::SimpleAtod(wanted, &b);
      EXPECT_TRUE(numbers ? a == b : resolved == wanted)
          << field.full_name() << " is " << resolved << ", not " << wanted;
    }
  }
}

TEST(DecodeSpec, AnExplicitZeroIsAValue) {
  const TensorSpec spec = Decoded(
      "sinusoidal { dim: 2 base: 0 } output { scale: 0 mask { "
      "fill_value: 0 } }");
  EXPECT_EQ(spec.encoding.As<SinusoidalSpec>()->base, 0);
  EXPECT_EQ(spec.output.scale, 0);
  EXPECT_EQ(std::get<double>(spec.output.mask->fill), 0);
}

TEST(DecodeSpec, NoEncodingListsThem) {
  EXPECT_THAT(DecodeSpec(Wire("pair { query_length: 1 }")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("encoding: not set, want one of sinusoidal, "
                                  "t5, alibi, ")));
}

// Before anything is made of them: they are two bytes each in a request.
TEST(DecodeSpec, ListsOfMessagesAreShort) {
  const auto refusal = [](const std::string& message) {
    return StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(message));
  };
  v1::TensorSpec layers = Wire("dynamic_position_bias { num_heads: 1 }");
  for (int i = 0; i < 65; ++i) {
    layers.mutable_dynamic_position_bias()->add_layers();
  }
  EXPECT_THAT(DecodeSpec(layers),
              refusal("dynamic_position_bias.layers: got 65, want at most 64"));
  v1::TensorSpec lists = Wire("sinusoidal { dim: 2 }");
  for (int i = 0; i < 5; ++i) lists.mutable_table()->add_position_ids();
  EXPECT_THAT(DecodeSpec(lists),
              refusal("table.position_ids: got 5, want at most 4"));
}

TEST(DecodeSpec, FillLowestIsTrueOrUnset) {
  EXPECT_THAT(
      DecodeSpec(Wire("alibi {} output { mask { fill_lowest: false } }")),
      StatusIs(absl::StatusCode::kInvalidArgument,
               StartsWith("output.mask.fill_lowest: got false")));
}

class DecodeTable : public testing::Test {
 protected:
  static v1::TensorSpec WithTable(const std::string& table) {
    return Wire("t5 { num_heads: 1 bidirectional: true table { " + table +
                " } }");
  }
};

TEST_F(DecodeTable, TransposesByLayoutAndNamesByDigest) {
  // [2 buckets, 1 head] and its transpose hold the same bytes.
  const std::string inline_table =
      "inline_table { data_type: DATA_TYPE_F16 shape: [2, 1] "
      "data: '\\000\\074\\000\\100' }";
  const absl::StatusOr<TensorSpec> straight =
      DecodeSpec(WithTable(inline_table));
  ASSERT_THAT(straight, IsOk());
  const auto& table = *straight->encoding.As<T5Spec>()->table;
  EXPECT_EQ(table.At(0, 0), 1.0);
  EXPECT_EQ(table.At(1, 0), 2.0);
  const v1::TensorSpec encoded = EncodeSpec(*straight);
  EXPECT_EQ(encoded.t5().table().sha256(), table.sha256());
  EXPECT_EQ(encoded.t5().table().layout(), v1::TABLE_LAYOUT_BUCKETS_HEADS);

  const absl::StatusOr<TensorSpec> transposed = DecodeSpec(
      WithTable("layout: TABLE_LAYOUT_HEADS_BUCKETS inline_table { data_type: "
                "DATA_TYPE_F16 shape: [1, 2] data: '\\000\\074\\000\\100' }"));
  ASSERT_THAT(transposed, IsOk());
  EXPECT_EQ(transposed->encoding.As<T5Spec>()->table->sha256(), table.sha256());
}

TEST_F(DecodeTable, TooLargeNamesBothSizes) {
  v1::TensorSpec spec =
      WithTable("inline_table { data_type: DATA_TYPE_F32 shape: [786432, 1] }");
  spec.mutable_t5()->mutable_table()->mutable_inline_table()->set_data(
      std::string(3 << 20, '\0'));
  EXPECT_THAT(DecodeSpec(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "t5.table.inline_table.data: got 3145728 bytes, want at "
                       "most 2097152 in a request; a larger table is mounted "
                       "(--tables)"));
}

TEST_F(DecodeTable, ErrorsNameTheField) {
  EXPECT_THAT(DecodeSpec(WithTable("")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("t5.table: got no source")));
  EXPECT_THAT(DecodeSpec(WithTable("inline_table { shape: [1, 1] }")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("t5.table.inline_table.data_type: not set")));
  EXPECT_THAT(
      DecodeSpec(WithTable(
          "inline_table { data_type: DATA_TYPE_F32 shape: [9] data: 'xxxx' }")),
      StatusIs(absl::StatusCode::kInvalidArgument,
               StartsWith("t5.table.inline_table")));
  EXPECT_THAT(DecodeSpec(WithTable("sha256: 'ABC'")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("t5.table.sha256: got 3 characters")));
  EXPECT_THAT(
      DecodeSpec(WithTable("sha256: '" + std::string(64, 'a') + "'")),
      StatusIs(absl::StatusCode::kNotFound, StartsWith("t5.table.sha256: ")));
}

TEST_F(DecodeTable, MountedTablesAreFoundByNameAndByDigest) {
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(
      WriteFile(FreshFolder() / "t.safetensors",
                SafetensorsBytes({{"w", {2, 3}, {1, 2, 3, 4, 5, 6}},
                                  {"row", {3}, {1, 2, 3}}})));
  ASSERT_THAT(file, IsOk());
  TableSetBuilder builder(1000);
  ASSERT_THAT(builder.Add("enc", *file, *file->Find("w")), IsOk());
  ASSERT_THAT(builder.Add("row", *file, *file->Find("row")), IsOk());
  const TableSetPtr tables = *std::move(builder).Build();
  const auto found = [&](const std::string& ref) {
    const auto spec = DecodeSpec(WithTable(ref), *tables);
    EXPECT_THAT(spec, IsOk());
    return *spec->encoding.As<T5Spec>()->table;
  };

  const Table straight = found("name: 'enc'");
  EXPECT_EQ(straight.At(1, 0), 4);
  const Table transposed =
      found("name: 'enc' layout: TABLE_LAYOUT_HEADS_BUCKETS");
  EXPECT_EQ(transposed.At(0, 1), 4);
  // As resolved specs name the two.
  for (const Table& table : {straight, transposed}) {
    const Table again = found("sha256: '" + table.sha256() +
                              "' layout: TABLE_LAYOUT_BUCKETS_HEADS");
    EXPECT_EQ(again.shape(), table.shape());
    EXPECT_EQ(again.sha256(), table.sha256());
  }

  EXPECT_THAT(DecodeSpec(WithTable("name: 'dec'"), *tables),
              StatusIs(absl::StatusCode::kNotFound,
                       "t5.table.name: got 'dec', want the name of a mounted "
                       "table; ListTables has them"));
  EXPECT_THAT(
      DecodeSpec(WithTable("name: 'row' layout: TABLE_LAYOUT_HEADS_BUCKETS"),
                 *tables),
      StatusIs(absl::StatusCode::kInvalidArgument,
               StartsWith("t5.table: got layout HEADS_BUCKETS of shape [3]")));
}

}  // namespace
}  // namespace attnbias::spec_codec_test
