// SPDX-License-Identifier: Apache-2.0
#include "server/codec/spec_codec.h"

#include <limits>
#include <string>

#include "core/kernel/kernel_set.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace attnbias {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::HasSubstr;
using testing::StartsWith;

v1::TensorSpec Wire(const std::string& text) {
  v1::TensorSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec));
  return spec;
}

TensorSpec Decoded(const std::string& text) {
  const absl::StatusOr<TensorSpec> spec = DecodeSpec(Wire(text));
  EXPECT_THAT(spec, IsOk());
  return spec.value_or(TensorSpec());
}

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
  const v1::TensorSpec twice = EncodeSpec(Decoded(once.DebugString()));
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
                  "learned_absolute { offset: 2 padding_idx: 0 "
                  "interpolation: INTERPOLATION_LINEAR "
                  "interpolated_length: 7 }",
                  "learned_absolute { offset: 2 padding_idx: 0 "
                  "interpolation: INTERPOLATION_LINEAR "
                  "interpolated_length: 7 } "
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

TEST(DecodeSpec, AnExplicitZeroIsAValue) {
  const TensorSpec spec = Decoded(
      "sinusoidal { dim: 2 base: 0 } output { scale: 0 mask { "
      "fill_value: 0 } }");
  EXPECT_EQ(std::get<SinusoidalSpec>(spec.encoding).base, 0);
  EXPECT_EQ(spec.output.scale, 0);
  EXPECT_EQ(std::get<double>(spec.output.mask->fill), 0);
}

TEST(DecodeSpec, NoEncodingListsThem) {
  EXPECT_THAT(DecodeSpec(Wire("pair { query_length: 1 }")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "encoding: not set, want one of sinusoidal, t5, alibi"));
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
  const auto& table = *std::get<T5Spec>(straight->encoding).table;
  EXPECT_EQ(table.At(0, 0), 1.0);
  EXPECT_EQ(table.At(1, 0), 2.0);
  const v1::TensorSpec encoded = EncodeSpec(*straight);
  EXPECT_EQ(encoded.t5().table().sha256(), table.sha256());
  EXPECT_EQ(encoded.t5().table().layout(), v1::TABLE_LAYOUT_BUCKETS_HEADS);

  const absl::StatusOr<TensorSpec> transposed = DecodeSpec(
      WithTable("layout: TABLE_LAYOUT_HEADS_BUCKETS inline_table { data_type: "
                "DATA_TYPE_F16 shape: [1, 2] data: '\\000\\074\\000\\100' }"));
  ASSERT_THAT(transposed, IsOk());
  EXPECT_EQ(std::get<T5Spec>(transposed->encoding).table->sha256(),
            table.sha256());
}

TEST_F(DecodeTable, TooLargeNamesBothSizes) {
  v1::TensorSpec spec =
      WithTable("inline_table { data_type: DATA_TYPE_F32 shape: [786432, 1] }");
  spec.mutable_t5()->mutable_table()->mutable_inline_table()->set_data(
      std::string(3 << 20, '\0'));
  EXPECT_THAT(DecodeSpec(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "t5.table.inline_table.data: got 3145728 bytes, want at "
                       "most 2097152"));
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

}  // namespace
}  // namespace attnbias
