// SPDX-License-Identifier: Apache-2.0
// From the command line's words to a TensorSpec.
#include "client/cli/tensor_options.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/spec_fields.h"

namespace attnbias::tensor_options_test {
namespace {

// The spec, compared with one written as a text proto.
void ExpectSpec(const TensorOptions& options, const std::string& text) {
  const auto spec = BuildSpec(options);
  ASSERT_TRUE(spec.ok()) << spec.status();
  v1::TensorSpec wanted;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &wanted));
  std::string difference;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&difference);
  EXPECT_TRUE(differencer.Compare(wanted, *spec)) << difference;
}

TEST(BuildSpec, SetsFieldsOfEveryType) {
  ExpectSpec({.encoding = "sinusoidal",
              .fields = {"dim=512", "ladder.base=1e6", "columns=sines_cosines",
                         "axes.0.scale=-2", "axes.0.ladder.frequencies=1,-2",
                         "axes.1={}", "axes.2.ladder.timescales={}"}},
             "sinusoidal { dim: 512 ladder { base: 1e6 } "
             "columns: COLUMNS_SINES_COSINES axes { scale: -2 "
             "ladder { frequencies { values: [1, -2] } } } axes {} "
             "axes { ladder { timescales {} } } }");
  ExpectSpec(
      {.encoding = "alibi",
       .fields = {"num_heads=3", "slopes=1,-0.5,2e-3", "variant=KEY_FROM_end"}},
      "alibi { num_heads: 3 slopes: 1 slopes: -0.5 slopes: 2e-3 "
      "variant: ALIBI_VARIANT_KEY_FROM_END }");
  ExpectSpec({.encoding = "learned_absolute",
              .fields = {"table=name:w", "resample.source=2,3",
                         "resample.target=4,5", "resample.filter=cubic"}},
             "learned_absolute { table { name: 'w' } resample { source: [2, 3] "
             "target: [4, 5] filter: FILTER_CUBIC } }");
}

// A default that is set is not the same message as one that is not.
TEST(BuildSpec, KeepsWhatIsSetToZero) {
  const auto spec = BuildSpec(
      {.encoding = "t5", .fields = {"num_buckets=0", "bidirectional=false"}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->t5().has_num_buckets());
  EXPECT_TRUE(spec->t5().has_bidirectional());
  EXPECT_FALSE(spec->t5().bidirectional());
  EXPECT_FALSE(spec->t5().has_max_distance());
}

TEST(BuildSpec, ReadsADigestAndALayout) {
  ExpectSpec(
      {.encoding = "t5",
       .fields = {"table=sha256:ab12", "table_layout=heads_buckets"}},
      "t5 { table { sha256: 'ab12' layout: TABLE_LAYOUT_HEADS_BUCKETS } }");
}

TEST(BuildSpec, ReadsAMountedTablesName) {
  ExpectSpec({.encoding = "t5", .fields = {"table=name:m/encoder"}},
             "t5 { table { name: 'm/encoder' } }");
}

TEST(BuildSpec, ReadsFieldsOfParts) {
  ExpectSpec({.encoding = "dynamic_position_bias",
              .fields = {"num_heads=2", "layers.0.weight=name:a",
                         "layers.1.weight=name:b", "layers.0.bias=name:c",
                         "layers.1.weight_layout=heads_buckets"}},
             "mlp_bias { activation: ACTIVATION_SILU num_heads: 2 "
             "layers { weight { name: 'a' } bias { name: 'c' } } "
             "layers { weight { name: 'b' "
             "layout: TABLE_LAYOUT_HEADS_BUCKETS } } }");
}

TEST(EncodingText, NamesTheLayoutOfATableInAMessage) {
  const auto spec =
      BuildSpec({.encoding = "mlp_bias",
                 .fields = {"layers.0.weight=name:a",
                            "layers.0.weight_layout=heads_buckets"}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(EncodingText(*spec),
            "mlp_bias layers.0.weight=name:a "
            "layers.0.weight_layout=heads_buckets");
}

TEST(BuildSpec, TakesAnEnumByItsFullName) {
  ExpectSpec({.encoding = "t5", .fields = {"bucket_rule=BUCKET_RULE_EXACT"}},
             "t5 { bucket_rule: BUCKET_RULE_EXACT }");
}

TEST(BuildSpec, ReadsPositions) {
  ExpectSpec({.encoding = "sinusoidal", .flags = {{"positions", {"131072"}}}},
             "sinusoidal {} table { positions { begin: 0 end: 131072 } }");
  ExpectSpec({.encoding = "sinusoidal", .flags = {{"positions", {"-5:7"}}}},
             "sinusoidal {} table { positions { begin: -5 end: 7 } }");
  ExpectSpec(
      {.encoding = "rotary", .flags = {{"position_ids", {"0,1,0", "-7,5,3"}}}},
      "rotary {} table { position_ids { positions: [0, 1, 0] } "
      "position_ids { positions: [-7, 5, 3] } }");
  ExpectSpec({.encoding = "rotary",
              .flags = {{"position_ids", {"0.5,1,-1e3", "-7,5,3"}}}},
             "rotary {} table { position_ids { doubles: [0.5, 1, -1000] } "
             "position_ids { positions: [-7, 5, 3] } }");
  ExpectSpec({.encoding = "rotary",
              .flags = {{"grid", {"21,45,80"}}, {"grid_offset", {"0,-5,1"}}}},
             "rotary {} table { grid: [21, 45, 80] grid_offset: [0, -5, 1] }");
  ExpectSpec({.encoding = "levit",
              .fields = {"window=14,14"},
              .flags = {{"query_stride", {"2,2"}}, {"heads", {"1"}}}},
             "grid_relative { window: [14, 14] symmetric: true } "
             "grid { query_stride: [2, 2] heads { begin: 0 end: 1 } }");
}

TEST(BuildSpec, ReadsQueriesAndKeys) {
  ExpectSpec({.encoding = "alibi",
              .flags = {{"query_length", {"1024"}},
                        {"key_length", {"2048"}},
                        {"alignment", {"end"}}}},
             "alibi {} pair { query_length: 1024 key_length: 2048 "
             "alignment: ALIGNMENT_END }");
  ExpectSpec({.encoding = "alibi",
              .flags = {{"query_length", {"4096"}},
                        {"query_offset", {"-3"}},
                        {"queries", {"4095:4096"}},
                        {"keys", {"10:20"}},
                        {"heads", {"8"}}}},
             "alibi {} pair { query_length: 4096 query_offset: -3 "
             "queries { begin: 4095 end: 4096 } keys { begin: 10 end: 20 } "
             "heads { end: 8 } }");
  ExpectSpec({.encoding = "alibi",
              .flags = {{"query_positions", {"1,5"}},
                        {"key_positions", {"2"}},
                        {"query_offset", {"0"}}}},
             "alibi {} pair { query_offset: 0 "
             "query_positions { positions: [1, 5] } "
             "key_positions { positions: 2 } }");
}

TEST(BuildSpec, AGridNeedsNoLengths) {
  ExpectSpec(
      {.encoding = "swin",
       .fields = {"window=2,3", "table=name:w", "table_layout=heads_buckets"}},
      "grid_relative { window: [2, 3] "
      "table { name: 'w' layout: TABLE_LAYOUT_HEADS_BUCKETS } }");
  ExpectSpec(
      {.encoding = "beit", .flags = {{"queries", {"3"}}, {"keys", {"1:5"}}}},
      "grid_relative { class_token: true } "
      "grid { queries { end: 3 } keys { begin: 1 end: 5 } }");
}

TEST(BuildSpec, ReadsTheOutput) {
  ExpectSpec({.encoding = "t5",
              .flags = {{"form", {"dense"}},
                        {"data_type", {"bf16"}},
                        {"values", {"BUCKETS"}},
                        {"scale", {"0.125"}}}},
             "t5 {} output { form: FORM_DENSE data_type: DATA_TYPE_BF16 "
             "values: VALUES_BUCKETS scale: 0.125 }");
}

TEST(BuildSpec, ReadsTheMask) {
  ExpectSpec({.encoding = "t5",
              .flags = {{"causal", {"true"}}, {"fill_value", {"-inf"}}}},
             "t5 {} output { mask { causal: true fill_value: -inf } }");
  ExpectSpec({.encoding = "t5",
              .flags = {{"window_left", {"0"}},
                        {"window_right", {"7"}},
                        {"fill_lowest", {"true"}}}},
             "t5 {} output { mask { window_left: 0 window_right: 7 "
             "fill_lowest: true } }");
}

TEST(BuildSpec, TakesPresets) {
  const auto built = [](const std::string& name,
                        const std::vector<std::string>& fields) {
    return EncodingText(
        BuildSpec({.encoding = name, .fields = fields}).value());
  };
  EXPECT_EQ(built("xlnet", {"dim=8", "clamp_len=4"}),
            "relative_sinusoidal dim=8 columns=sines_cosines left=4 right=4");
  EXPECT_EQ(built("xlnet", {"clamp_len=4", "causal=true"}),
            "relative_sinusoidal columns=sines_cosines left=4 causal=true");
  EXPECT_EQ(built("symmetric_sinusoidal", {"base=500"}),
            "relative_sinusoidal ladder.base=500 symmetric=true");
  EXPECT_EQ(built("detr_sinusoidal", {"height=3", "width=2", "temperature=20"}),
            "sinusoidal axes.0.scale=6.283185307179586 axes.0.length=3 "
            "axes.0.eps=1e-06 axes.0.ladder.base=20 "
            "axes.1.scale=6.283185307179586 axes.1.length=2 axes.1.eps=1e-06 "
            "axes.1.ladder.base=20");
  EXPECT_EQ(built("tensor2tensor", {"dim=8"}),
            "sinusoidal dim=8 ladder.timescales={} columns=sines_cosines "
            "odd=zero");
  EXPECT_EQ(built("shaw", {"left=1", "table=name:w"}),
            "learned_relative vectors=name:w left=1");
  EXPECT_EQ(built("shaw", {"left=1"}), "learned_relative left=1");
}

// Wrong options, and the whole error message.
struct Mistake {
  std::string name;
  TensorOptions options;
  std::string message;
};

void PrintTo(const Mistake& mistake, std::ostream* out) {
  *out << mistake.name;
}

// "sinusoidal, t5, alibi, ..."
std::string EncodingNames() {
  std::string names;
  for (const NamedEncoding& encoding : Encodings()) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", encoding.name);
  }
  return names;
}

class Mistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, AreNamed) {
  EXPECT_EQ(BuildSpec(GetParam().options).status(),
            absl::InvalidArgumentError(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    BuildSpec, Mistakes,
    ::testing::Values(
        Mistake{"Encoding",
                {.encoding = "alibaba"},
                absl::StrCat("encoding: got \"alibaba\", want one of ",
                             EncodingNames())},
        Mistake{"Field",
                {.encoding = "alibi", .fields = {"heads=8"}},
                "alibi.heads: no such field, want one of num_heads, "
                "alibi_bias_max, slopes, variant"},
        Mistake{"FieldOfATable",
                {.encoding = "t5", .fields = {"slopes_layout=x"}},
                "t5.slopes_layout: no such field, want one of num_heads, "
                "num_buckets, max_distance, bidirectional, table, "
                "table_layout, bucket_rule"},
        Mistake{"ConstantOfAPreset",
                {.encoding = "xlnet", .fields = {"columns=interleaved"}},
                "xlnet.columns: no such field, want one of dim, base, "
                "clamp_len, causal, sign"},
        Mistake{"ArgumentOfAPreset",
                {.encoding = "xlnet", .fields = {"clamp_len=far"}},
                "xlnet.clamp_len: got \"far\", want an integer of 64 bits"},
        Mistake{"NestedArgumentOfAPreset",
                {.encoding = "xlnet", .fields = {"base=low"}},
                "xlnet.base: got \"low\", want a number"},
        Mistake{"MissingArgumentOfAPreset",
                {.encoding = "detr_sinusoidal", .fields = {"height=3"}},
                "detr_sinusoidal.width: not set, want it"},
        Mistake{"TwoKinds",
                {.encoding = "sinusoidal",
                 .fields = {"ladder.base=2", "ladder.timescales.min=3"}},
                "sinusoidal.ladder.timescales: got it beside base, want one of "
                "the two"},
        Mistake{"NestedField",
                {.encoding = "sinusoidal", .fields = {"axes.0.ladder.bas=2"}},
                "sinusoidal.axes.0.ladder.bas: no such field, want one of "
                "base, timescales.min, timescales.max, frequencies (did you "
                "mean base?)"},
        Mistake{"NestedMessage",
                {.encoding = "sinusoidal", .fields = {"axes.0.ladder=2"}},
                "sinusoidal.axes.0.ladder: no such field, want one of scale, "
                "offset, length, eps, ladder.base, ladder.timescales.min, "
                "ladder.timescales.max, ladder.frequencies"},
        Mistake{"TableOfAPreset",
                {.encoding = "shaw", .fields = {"scalars=name:w"}},
                "shaw.scalars: no such field, want one of right, left, table, "
                "table_layout, sign, beyond"},
        Mistake{"LayoutOfAPreset",
                {.encoding = "shaw", .fields = {"table_layout=rows"}},
                "shaw.table_layout: got \"rows\", want one of buckets_heads, "
                "heads_buckets"},
        Mistake{"TwoTables",
                {.encoding = "learned_relative",
                 .fields = {"scalars=name:w", "vectors_layout=buckets_heads"}},
                "learned_relative.vectors_layout: got it beside scalars, want "
                "one of the two"},
        Mistake{"ExtentOfAPreset",
                {.encoding = "xlnet", .flags = {{"positions", {"4"}}}},
                "--positions: got a value, want none: the extent of xlnet is "
                "pair"},
        Mistake{"NoEquals",
                {.encoding = "alibi", .fields = {"num_heads"}},
                "alibi: got \"num_heads\", want FIELD=VALUE"},
        Mistake{"Twice",
                {.encoding = "alibi", .fields = {"num_heads=1", "num_heads=2"}},
                "alibi.num_heads: given twice, want it once"},
        Mistake{"NoInteger",
                {.encoding = "alibi", .fields = {"num_heads=8.5"}},
                "alibi.num_heads: got \"8.5\", want an integer of 32 bits"},
        Mistake{"LargeInteger",
                {.encoding = "alibi", .fields = {"num_heads=4294967296"}},
                "alibi.num_heads: got \"4294967296\", want an integer of 32 "
                "bits"},
        Mistake{"NoNumber",
                {.encoding = "alibi", .fields = {"slopes=1,,2"}},
                "alibi.slopes: got \"\", want a number"},
        Mistake{"NoBool",
                {.encoding = "t5", .fields = {"bidirectional=maybe"}},
                "t5.bidirectional: got \"maybe\", want true or false"},
        Mistake{"NoEnum",
                {.encoding = "t5", .fields = {"bucket_rule=unspecified"}},
                "t5.bucket_rule: got \"unspecified\", want one of exact, "
                "float32_log"},
        Mistake{
            "NoTable",
            {.encoding = "t5", .fields = {"table=weights.npy"}},
            "t5.table: got \"weights.npy\", want "
            "@FILE.safetensors:TENSOR, @FILE.npy, name:NAME or sha256:DIGEST"},
        Mistake{"NoLayout",
                {.encoding = "t5", .fields = {"table_layout=rows"}},
                "t5.table_layout: got \"rows\", want one of buckets_heads, "
                "heads_buckets"},
        Mistake{"PartOutOfOrder",
                {.encoding = "dynamic_position_bias",
                 .fields = {"layers.1.weight=name:a"}},
                "dynamic_position_bias.layers.1: want layers in order from 0 "
                "on, 0 being next"},
        Mistake{"PartWithoutNumber",
                {.encoding = "dynamic_position_bias",
                 .fields = {"layers.first.weight=name:a"}},
                "dynamic_position_bias.layers.first: want layers in order "
                "from 0 on, 0 being next"},
        Mistake{"FieldOfAPart",
                {.encoding = "dynamic_position_bias",
                 .fields = {"layers.0.width=name:a"}},
                "dynamic_position_bias.layers.0.width: no such field, want one "
                "of weight, weight_layout, bias, bias_layout, norm_weight, "
                "norm_weight_layout, norm_bias, norm_bias_layout"},
        Mistake{
            "PartsAsAWhole",
            {.encoding = "dynamic_position_bias", .fields = {"layers=name:a"}},
            "dynamic_position_bias.layers: no such field, want one of "
            "layers.N.weight, layers.N.weight_layout, layers.N.bias, "
            "layers.N.bias_layout, layers.N.norm_weight, "
            "layers.N.norm_weight_layout, layers.N.norm_bias, "
            "layers.N.norm_bias_layout, num_heads, coordinates"},
        Mistake{"PositionIds",
                {.encoding = "sinusoidal",
                 .flags = {{"position_ids", {"1,2", "3,x"}}}},
                "--position-ids: got \"x\", want an integer of 64 bits"},
        Mistake{"Positions",
                {.encoding = "sinusoidal", .flags = {{"positions", {"1:2:3"}}}},
                "--positions: got \"1:2:3\", want a half-open range A:B, or N "
                "for 0:N"},
        Mistake{"Queries",
                {.encoding = "alibi", .flags = {{"queries", {":4"}}}},
                "--queries: got \":4\", want a half-open range A:B, or N for "
                "0:N"},
        Mistake{"Alignment",
                {.encoding = "alibi", .flags = {{"alignment", {"middle"}}}},
                "--alignment: got \"middle\", want one of start, end"},
        Mistake{"FillValue",
                {.encoding = "alibi", .flags = {{"fill_value", {"low"}}}},
                "--fill-value: got \"low\", want a number"},
        Mistake{"TwoFills",
                {.encoding = "alibi",
                 .flags = {{"fill_value", {"0"}}, {"fill_lowest", {"true"}}}},
                "--fill-value: got it beside --fill-lowest, want one of the "
                "two"},
        Mistake{"ExtentOfAnother",
                {.encoding = "alibi", .flags = {{"positions", {"4"}}}},
                "--positions: got a value, want none: the extent of alibi is "
                "pair"},
        Mistake{"QueryLengthInAWindow",
                {.encoding = "mlp_bias",
                 .fields = {"window=2,2"},
                 .flags = {{"query_length", {"4"}}}},
                "--query-length: got a value, want none: the extent of "
                "mlp_bias is grid"},
        Mistake{"OffsetInAGrid",
                {.encoding = "swin", .flags = {{"query_offset", {"0"}}}},
                "--query-offset: got a value, want none: the extent of swin is "
                "grid"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace attnbias::tensor_options_test
