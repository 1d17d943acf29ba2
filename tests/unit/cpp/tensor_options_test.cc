// SPDX-License-Identifier: Apache-2.0
// Tests the conversion of command-line arguments to a TensorSpec.
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/spec_fields.h"

namespace attnbias::tensor_options_test {
namespace {

// Parses a line that has an encoding, fields, and flags with values.
TensorOptions OptionsOf(const std::string& line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  TensorOptions options{.encoding = words[0], .fields = {}, .flags = {}};
  for (size_t i = 1; i < words.size(); ++i) {
    if (!absl::StartsWith(words[i], "--")) {
      options.fields.push_back(words[i]);
      continue;
    }
    options.flags[absl::StrReplaceAll(words[i].substr(2), {{"-", "_"}})].push_back(words[i + 1]);
    ++i;
  }
  return options;
}

constexpr char kPair[] = " --query-length 1 --key-length 1";

// Compares the spec from a line with one in text format, including the extent if the latter has
// one.
void ExpectSpec(const std::string& line, const std::string& text) {
  auto spec = BuildSpec(OptionsOf(line));
  ASSERT_TRUE(spec.ok()) << spec.status();
  v1::TensorSpec wanted;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &wanted));
  if (wanted.extent_case() == wanted.EXTENT_NOT_SET) spec->clear_extent();
  std::string difference;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&difference);
  EXPECT_TRUE(differencer.Compare(wanted, *spec)) << difference;
}

TEST(BuildSpec, SetsFieldsOfEveryType) {
  ExpectSpec(
      "sinusoidal dim=512 ladder.base=1e6 columns=sines_cosines "
      "axes.0.scale=-2 axes.0.ladder.frequencies=1,-2 axes.1={} "
      "axes.2.ladder.timescales={} --positions 1",
      "sinusoidal { dim: 512 ladder { base: 1e6 } "
      "columns: COLUMNS_SINES_COSINES axes { scale: -2 "
      "ladder { frequencies { values: [1, -2] } } } axes {} "
      "axes { ladder { timescales {} } } }");
  ExpectSpec(absl::StrCat("alibi num_heads=3 slopes=1,-0.5,2e-3 variant=KEY_FROM_end", kPair),
             "alibi { num_heads: 3 slopes: 1 slopes: -0.5 slopes: 2e-3 "
             "variant: ALIBI_VARIANT_KEY_FROM_END }");
  ExpectSpec(
      "learned_absolute table=name:m/w resample.source=2,3 "
      "resample.target=4,5 resample.filter=cubic --positions 1",
      "learned_absolute { table { name: 'm/w' } resample { source: [2, 3] "
      "target: [4, 5] filter: FILTER_CUBIC } }");
  ExpectSpec(absl::StrCat("t5 table=sha256:ab12 table_layout=heads_buckets", kPair),
             "t5 { table { sha256: 'ab12' layout: "
             "TABLE_LAYOUT_HEADS_BUCKETS } }");
  ExpectSpec(absl::StrCat("t5 bucket_rule=BUCKET_RULE_EXACT", kPair),
             "t5 { bucket_rule: BUCKET_RULE_EXACT }");
}

// A message with an explicit default differs from one without it.
TEST(BuildSpec, KeepsFieldsSetToZero) {
  const auto spec =
      BuildSpec(OptionsOf(absl::StrCat("t5 num_buckets=0 bidirectional=false", kPair)));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->t5().has_num_buckets());
  EXPECT_TRUE(spec->t5().has_bidirectional());
  EXPECT_FALSE(spec->t5().bidirectional());
  EXPECT_FALSE(spec->t5().has_max_distance());
}

TEST(BuildSpec, ReadsFieldsOfNestedMessages) {
  ExpectSpec(absl::StrCat("dynamic_position_bias num_heads=2 layers.0.weight=name:a "
                          "layers.1.weight=name:b layers.0.bias=name:c "
                          "layers.1.weight_layout=heads_buckets",
                          kPair),
             "mlp_bias { activation: ACTIVATION_SILU num_heads: 2 "
             "layers { weight { name: 'a' } bias { name: 'c' } } layers { weight { "
             "name: 'b' layout: TABLE_LAYOUT_HEADS_BUCKETS } } }");
}

TEST(EncodingText, NamesLayoutOfNestedTable) {
  const std::string line = "mlp_bias layers.0.weight=name:a layers.0.weight_layout=heads_buckets";
  EXPECT_EQ(EncodingText(BuildSpec(OptionsOf(line + kPair)).value()), line);
}

TEST(BuildSpec, ReadsPositions) {
  ExpectSpec("sinusoidal --positions 131072",
             "sinusoidal {} table { positions { begin: 0 end: 131072 } }");
  ExpectSpec("sinusoidal --positions -5:7",
             "sinusoidal {} table { positions { begin: -5 end: 7 } }");
  ExpectSpec("rotary --position-ids 0,1,0 --position-ids -7,5,3",
             "rotary {} table { position_ids { positions: [0, 1, 0] } "
             "position_ids { positions: [-7, 5, 3] } }");
  ExpectSpec("rotary --position-ids 0.5,1,-1e3 --position-ids -7,5,3",
             "rotary {} table { position_ids { doubles: [0.5, 1, -1000] } "
             "position_ids { positions: [-7, 5, 3] } }");
  ExpectSpec("rotary --grid 21,45,80 --grid-offset 0,-5,1",
             "rotary {} table { grid: [21, 45, 80] grid_offset: [0, -5, 1] }");
  ExpectSpec("levit window=14,14 --query-stride 2,2 --heads 1",
             "grid_relative { window: [14, 14] symmetric: true } "
             "grid { query_stride: [2, 2] heads { begin: 0 end: 1 } }");
}

TEST(BuildSpec, ReadsQueriesAndKeys) {
  ExpectSpec("alibi --query-length 1024 --key-length 2048 --alignment end",
             "alibi {} pair { query_length: 1024 key_length: 2048 "
             "alignment: ALIGNMENT_END }");
  ExpectSpec(
      "alibi --query-length 4096 --query-offset -3 --queries 4095:4096 "
      "--keys 10:20 --heads 8",
      "alibi {} pair { query_length: 4096 query_offset: -3 "
      "queries { begin: 4095 end: 4096 } keys { begin: 10 end: 20 } "
      "heads { end: 8 } }");
  ExpectSpec("alibi --query-positions 1,5 --key-positions 2 --query-offset 0",
             "alibi {} pair { query_offset: 0 "
             "query_positions { positions: [1, 5] } "
             "key_positions { positions: 2 } }");
}

TEST(BuildSpec, GridNeedsNoLengths) {
  ExpectSpec("swin window=2,3 table=name:w table_layout=heads_buckets",
             "grid_relative { window: [2, 3] "
             "table { name: 'w' layout: TABLE_LAYOUT_HEADS_BUCKETS } }");
  ExpectSpec("beit --queries 3 --keys 1:5",
             "grid_relative { class_token: true } "
             "grid { queries { end: 3 } keys { begin: 1 end: 5 } }");
}

TEST(BuildSpec, ReadsTheOutput) {
  ExpectSpec(absl::StrCat("t5 --form dense --data-type bf16 --values BUCKETS --scale 0.125", kPair),
             "t5 {} output { form: FORM_DENSE data_type: DATA_TYPE_BF16 "
             "values: VALUES_BUCKETS scale: 0.125 }");
  ExpectSpec(absl::StrCat("t5 --causal true --fill-value -inf", kPair),
             "t5 {} output { mask { causal: true fill_value: -inf } }");
  ExpectSpec(absl::StrCat("t5 --window-left 0 --window-right 7 --fill-lowest true", kPair),
             "t5 {} output { mask { window_left: 0 window_right: 7 "
             "fill_lowest: true } }");
}

TEST(BuildSpec, ExpandsPresets) {
  const auto built = [](const std::string& line, const std::string& extent = kPair) {
    return EncodingText(BuildSpec(OptionsOf(line + extent)).value());
  };
  EXPECT_EQ(built("xlnet dim=8 clamp_len=4"),
            "relative_sinusoidal dim=8 columns=sines_cosines left=4 right=4");
  EXPECT_EQ(built("xlnet clamp_len=4 causal=true"),
            "relative_sinusoidal columns=sines_cosines left=4 causal=true");
  EXPECT_EQ(built("symmetric_sinusoidal base=500"),
            "relative_sinusoidal ladder.base=500 symmetric=true");
  EXPECT_EQ(built("detr_sinusoidal height=3 width=2 temperature=20", " --positions 1"),
            "sinusoidal axes.0.scale=6.283185307179586 axes.0.length=3 "
            "axes.0.eps=1e-06 axes.0.ladder.base=20 "
            "axes.1.scale=6.283185307179586 axes.1.length=2 axes.1.eps=1e-06 "
            "axes.1.ladder.base=20");
  EXPECT_EQ(built("tensor2tensor dim=8", " --positions 1"),
            "sinusoidal dim=8 ladder.timescales={} columns=sines_cosines "
            "odd=zero");
  EXPECT_EQ(built("shaw left=1 table=name:w"), "learned_relative vectors=name:w left=1");
  EXPECT_EQ(built("shaw left=1"), "learned_relative left=1");
}

// An invalid line, and the complete error message.
struct Mistake {
  std::string name;
  std::string line;
  std::string message;
};

void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

// "sinusoidal, t5, alibi, ..."
std::string EncodingNames() {
  std::string names;
  for (const NamedEncoding& encoding : Encodings()) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", encoding.name);
  }
  return names;
}

class InvalidOptions : public ::testing::TestWithParam<Mistake> {};

TEST_P(InvalidOptions, AreNamedInErrors) {
  EXPECT_EQ(BuildSpec(OptionsOf(GetParam().line)).status(),
            absl::InvalidArgumentError(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    BuildSpec, InvalidOptions,
    ::testing::Values(
        Mistake{"Encoding", "alibaba",
                absl::StrCat("encoding: got \"alibaba\", want one of ", EncodingNames())},
        Mistake{"Field", "alibi heads=8",
                "alibi.heads: no such field, want one of num_heads, "
                "alibi_bias_max, slopes, variant"},
        Mistake{"FieldOfATable", "t5 slopes_layout=x",
                "t5.slopes_layout: no such field, want one of num_heads, "
                "num_buckets, max_distance, bidirectional, table, "
                "table_layout, bucket_rule"},
        Mistake{"ConstantOfAPreset", "xlnet columns=interleaved",
                "xlnet.columns: no such field, want one of dim, base, "
                "clamp_len, causal, sign"},
        Mistake{"ArgumentOfAPreset", "xlnet clamp_len=far",
                "xlnet.clamp_len: got \"far\", want a 64-bit integer"},
        Mistake{"NestedArgumentOfAPreset", "xlnet base=low",
                "xlnet.base: got \"low\", want a number"},
        Mistake{"MissingArgumentOfAPreset", "detr_sinusoidal height=3",
                "detr_sinusoidal.width: not set, want a value"},
        Mistake{"TwoKinds", "sinusoidal ladder.base=2 ladder.timescales.min=3",
                "sinusoidal.ladder.timescales: given together with base, want one of "
                "the two"},
        Mistake{"NestedField", "sinusoidal axes.0.ladder.bas=2",
                "sinusoidal.axes.0.ladder.bas: no such field, want one of "
                "base, timescales.min, timescales.max, frequencies"},
        Mistake{"NestedMessage", "sinusoidal axes.0.ladder=2",
                "sinusoidal.axes.0.ladder: no such field, want one of scale, "
                "offset, length, eps, ladder.base, ladder.timescales.min, "
                "ladder.timescales.max, ladder.frequencies"},
        Mistake{"TableOfAPreset", "shaw scalars=name:w",
                "shaw.scalars: no such field, want one of right, left, table, "
                "table_layout, sign, beyond"},
        Mistake{"LayoutOfAPreset", "shaw table_layout=rows",
                "shaw.table_layout: got \"rows\", want one of buckets_heads, "
                "heads_buckets"},
        Mistake{"TwoTables", "learned_relative scalars=name:w vectors_layout=buckets_heads",
                "learned_relative.vectors_layout: given together with scalars, want "
                "one of the two"},
        Mistake{"ExtentOfAPreset", "xlnet --positions 4",
                "--positions: got a value, want none: xlnet takes --query-length and "
                "--key-length"},
        Mistake{"NoEquals", "alibi num_heads", "alibi: got \"num_heads\", want FIELD=VALUE"},
        Mistake{"Twice", "alibi num_heads=1 num_heads=2",
                "alibi.num_heads: given twice, want it once"},
        Mistake{"NoInteger", "alibi num_heads=8.5",
                "alibi.num_heads: got \"8.5\", want a 32-bit integer"},
        Mistake{"LargeInteger", "alibi num_heads=4294967296",
                "alibi.num_heads: got \"4294967296\", want a 32-bit integer"},
        Mistake{"NoNumber", "alibi slopes=1,,2", "alibi.slopes: got \"\", want a number"},
        Mistake{"NoBool", "t5 bidirectional=maybe",
                "t5.bidirectional: got \"maybe\", want true or false"},
        Mistake{"NoEnum", "t5 bucket_rule=unspecified",
                "t5.bucket_rule: got \"unspecified\", want one of exact, "
                "float32_log"},
        Mistake{"NoTable", "t5 table=weights.npy",
                "t5.table: got \"weights.npy\", want "
                "@FILE.safetensors:TENSOR, @FILE.npy, name:NAME or sha256:DIGEST"},
        Mistake{"NoLayout", "t5 table_layout=rows",
                "t5.table_layout: got \"rows\", want one of buckets_heads, "
                "heads_buckets"},
        Mistake{"PartOutOfOrder", "dynamic_position_bias layers.1.weight=name:a",
                "dynamic_position_bias.layers.1: want layers numbered from 0 without "
                "gaps; the next is 0"},
        Mistake{"PartWithoutNumber", "dynamic_position_bias layers.first.weight=name:a",
                "dynamic_position_bias.layers.first: want layers numbered from "
                "0 without gaps; the next is 0"},
        Mistake{"FieldOfAPart", "dynamic_position_bias layers.0.width=name:a",
                "dynamic_position_bias.layers.0.width: no such field, want one "
                "of weight, weight_layout, bias, bias_layout, norm_weight, "
                "norm_weight_layout, norm_bias, norm_bias_layout"},
        Mistake{"PartsAsAWhole", "dynamic_position_bias layers=name:a",
                "dynamic_position_bias.layers: no such field, want one of "
                "layers.N.weight, layers.N.weight_layout, layers.N.bias, "
                "layers.N.bias_layout, layers.N.norm_weight, "
                "layers.N.norm_weight_layout, layers.N.norm_bias, "
                "layers.N.norm_bias_layout, num_heads, coordinates"},
        Mistake{"PositionIds", "sinusoidal --position-ids 1,2 --position-ids 3,x",
                "--position-ids: got \"x\", want a 64-bit integer"},
        Mistake{"Positions", "sinusoidal --positions 1:2:3",
                "--positions: got \"1:2:3\", want a half-open range A:B, or N "
                "for 0:N"},
        Mistake{"Queries", "alibi --queries :4",
                "--queries: got \":4\", want a half-open range A:B, or N for "
                "0:N"},
        Mistake{"Alignment", "alibi --alignment middle",
                "--alignment: got \"middle\", want one of start, end"},
        Mistake{"FillValue", "alibi --fill-value low", "--fill-value: got \"low\", want a number"},
        Mistake{"TwoFills", "alibi --fill-value 0 --fill-lowest true",
                "--fill-value: given together with fill_lowest, want one of the two"},
        Mistake{"ExtentOfAnother", "rotary --query-length 4",
                "--query-length: got a value, want none: rotary takes --positions, "
                "--position-ids or --grid"},
        Mistake{"QueryLengthInAWindow", "mlp_bias window=2,2 --query-length 4",
                "--query-length: got a value, want none: mlp_bias takes --queries, --keys, "
                "--heads or --query-stride"},
        Mistake{"OffsetInAGrid", "swin --query-offset 0",
                "--query-offset: got a value, want none: swin takes --queries, --keys, --heads or "
                "--query-stride"},
        Mistake{"NoPositions", "detr_sinusoidal height=3 width=2",
                "detr_sinusoidal: extent not set, want --positions, --position-ids or --grid"},
        Mistake{"NoLengths", "alibi num_heads=8 --causal true",
                "alibi: extent not set, want --query-length and --key-length"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace attnbias::tensor_options_test
