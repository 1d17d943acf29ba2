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
              .fields = {"dim=512", "base=1e6", "layout=concatenated"}},
             "sinusoidal { dim: 512 base: 1e6 "
             "layout: SINUSOIDAL_LAYOUT_CONCATENATED } output {}");
  ExpectSpec(
      {.encoding = "alibi",
       .fields = {"num_heads=3", "slopes=1,-0.5,2e-3", "variant=KEY_FROM_end"}},
      "alibi { num_heads: 3 slopes: 1 slopes: -0.5 slopes: 2e-3 "
      "variant: ALIBI_VARIANT_KEY_FROM_END } output {}");
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
      "t5 { table { sha256: 'ab12' layout: TABLE_LAYOUT_HEADS_BUCKETS } } "
      "output {}");
}

TEST(BuildSpec, ReadsAMountedTablesName) {
  ExpectSpec({.encoding = "t5", .fields = {"table=name:m/encoder"}},
             "t5 { table { name: 'm/encoder' } } output {}");
}

TEST(BuildSpec, ReadsFieldsOfParts) {
  ExpectSpec({.encoding = "dynamic_position_bias",
              .fields = {"num_heads=2", "layers.0.weight=name:a",
                         "layers.1.weight=name:b", "layers.0.bias=name:c",
                         "layers.1.weight_layout=heads_buckets"}},
             "dynamic_position_bias { num_heads: 2 "
             "layers { weight { name: 'a' } bias { name: 'c' } } "
             "layers { weight { name: 'b' "
             "layout: TABLE_LAYOUT_HEADS_BUCKETS } } } output {}");
}

TEST(BuildSpec, ReadsPositions) {
  ExpectSpec({.encoding = "sinusoidal", .positions = "131072"},
             "sinusoidal {} table { positions { begin: 0 end: 131072 } } "
             "output {}");
  ExpectSpec({.encoding = "sinusoidal", .positions = "-5:7"},
             "sinusoidal {} table { positions { begin: -5 end: 7 } } "
             "output {}");
  ExpectSpec({.encoding = "sinusoidal", .position_ids = {"3,-1,3"}},
             "sinusoidal {} table { position_ids { positions: [3, -1, 3] } } "
             "output {}");
  ExpectSpec({.encoding = "rotary", .position_ids = {"0,1", "-7,5"}},
             "rotary {} table { position_ids { positions: [0, 1] } "
             "position_ids { positions: [-7, 5] } } output {}");
}

TEST(BuildSpec, ReadsQueriesAndKeys) {
  ExpectSpec(
      {.encoding = "alibi", .queries = "1024", .keys = "2048", .align = "end"},
      "alibi {} pair { query_length: 1024 key_length: 2048 "
      "alignment: ALIGNMENT_END } output {}");
  // Of a window the whole has the length where it ends.
  ExpectSpec({.encoding = "alibi",
              .queries = "4095:4096",
              .keys = "10:4096",
              .heads = "0:8",
              .query_offset = -3},
             "alibi {} pair { query_length: 4096 key_length: 4096 "
             "query_offset: -3 queries { begin: 4095 end: 4096 } "
             "keys { begin: 10 end: 4096 } heads { begin: 0 end: 8 } } "
             "output {}");
  ExpectSpec({.encoding = "alibi",
              .heads = "4",
              .query_offset = 0,
              .query_position_ids = {1, 5},
              .key_position_ids = {2}},
             "alibi {} pair { heads { end: 4 } query_offset: 0 "
             "query_positions { positions: [1, 5] } "
             "key_positions { positions: 2 } } output {}");
}

TEST(BuildSpec, AGridNeedsNoLengths) {
  ExpectSpec({.encoding = "swin", .fields = {"window_height=2"}},
             "swin { window_height: 2 } output {}");
  ExpectSpec({.encoding = "beit", .queries = "3", .keys = "1:5", .heads = "2"},
             "beit {} grid { queries { end: 3 } keys { begin: 1 end: 5 } "
             "heads { end: 2 } } output {}");
}

TEST(BuildSpec, ReadsTheOutput) {
  ExpectSpec({.encoding = "t5",
              .form = "dense",
              .data_type = "bf16",
              .values = "buckets",
              .scale = 0.125},
             "t5 {} output { form: FORM_DENSE data_type: DATA_TYPE_BF16 "
             "values: VALUES_BUCKETS scale: 0.125 }");
  ExpectSpec({.encoding = "t5", .form = "KEY_ROW"},
             "t5 {} output { form: FORM_KEY_ROW }");
}

TEST(BuildSpec, ReadsTheMask) {
  ExpectSpec({.encoding = "t5", .causal = true},
             "t5 {} output { mask { causal: true } }");
  ExpectSpec(
      {.encoding = "t5", .window_left = 0, .window_right = 7, .fill = "lowest"},
      "t5 {} output { mask { window_left: 0 window_right: 7 "
      "fill_lowest: true } }");
  ExpectSpec({.encoding = "t5", .causal = true, .fill = "-1e9"},
             "t5 {} output { mask { causal: true fill_value: -1e9 } }");
  ExpectSpec({.encoding = "t5", .causal = true, .fill = "-inf"},
             "t5 {} output { mask { causal: true fill_value: -inf } }");
}

// What is wrong, and the whole message that says so.
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
  for (const auto* encoding : Encodings()) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", encoding->name());
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
            "num_heads, log_distance, layers.N.weight, "
            "layers.N.weight_layout, layers.N.bias, layers.N.bias_layout, "
            "layers.N.norm_weight, layers.N.norm_weight_layout, "
            "layers.N.norm_bias, layers.N.norm_bias_layout"},
        Mistake{"PositionIds",
                {.encoding = "sinusoidal", .position_ids = {"1,2", "3,x"}},
                "--position-ids: got \"x\", want integers, as 3,-1,3"},
        Mistake{"Positions",
                {.encoding = "sinusoidal", .positions = "1:2:3"},
                "--positions: got \"1:2:3\", want a length N or a half-open "
                "range A:B"},
        Mistake{"Queries",
                {.encoding = "alibi", .queries = ":4"},
                "--queries: got \":4\", want a length N or a half-open range "
                "A:B"},
        Mistake{"Align",
                {.encoding = "alibi", .align = "middle"},
                "--align: got \"middle\", want one of start, end"},
        Mistake{"Form",
                {.encoding = "alibi", .form = "sparse"},
                "--form: got \"sparse\", want one of table, toeplitz, key_row, "
                "dense, block_toeplitz_2d"},
        Mistake{"DataType",
                {.encoding = "alibi", .data_type = "fp8"},
                "--dtype: got \"fp8\", want one of f64, f32, f16, bf16, i32"},
        Mistake{"Fill",
                {.encoding = "alibi", .causal = true, .fill = "low"},
                "--fill: got \"low\", want a number, -inf or lowest"},
        Mistake{"FillAlone",
                {.encoding = "alibi", .fill = "0"},
                "--fill: needs a mask: --causal, --window-left or "
                "--window-right"}),
    [](const auto& info) { return info.param.name; });

class Extents : public ::testing::TestWithParam<Mistake> {};

TEST_P(Extents, AreThoseOfTheEncoding) {
  const absl::Status status = CheckExtent(GetParam().options);
  if (GetParam().message.empty()) {
    EXPECT_EQ(status, absl::OkStatus());
  } else {
    EXPECT_EQ(status, absl::InvalidArgumentError(GetParam().message));
  }
}

INSTANTIATE_TEST_SUITE_P(
    CheckExtent, Extents,
    ::testing::Values(
        Mistake{"Positions", {.encoding = "xpos", .positions = "4"}, ""},
        Mistake{"PositionIds", {.encoding = "xpos", .position_ids = {"4"}}, ""},
        Mistake{"QueriesAndKeys",
                {.encoding = "alibi",
                 .queries = "4",
                 .align = "end",
                 .key_position_ids = {1}},
                ""},
        Mistake{"WholeGrid", {.encoding = "swin"}, ""},
        Mistake{"PartOfAGrid", {.encoding = "swin", .keys = "3"}, ""},
        Mistake{"NoPositions",
                {.encoding = "xpos"},
                "--positions: not given, want N, A:B or --position-ids: xpos "
                "takes positions"},
        Mistake{"NoQueries",
                {.encoding = "alibi", .keys = "4"},
                "--queries: not given, want N, A:B or --query-position-ids: "
                "alibi takes queries and keys"},
        Mistake{"NoKeys",
                {.encoding = "alibi", .queries = "4"},
                "--keys: not given, want N, A:B or --key-position-ids: alibi "
                "takes queries and keys"},
        Mistake{"HeadsOfATable",
                {.encoding = "xpos", .positions = "4", .heads = "1"},
                "--heads: got a value, want none: xpos takes positions"},
        Mistake{"PositionsOfPairs",
                {.encoding = "alibi", .positions = "4", .keys = "4"},
                "--positions: got a value, want none: alibi takes queries and "
                "keys"},
        Mistake{
            "OffsetInAGrid",
            {.encoding = "swin", .query_offset = 0},
            "--query-offset: got a value, want none: swin has its tokens in a "
            "grid"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace attnbias::tensor_options_test
