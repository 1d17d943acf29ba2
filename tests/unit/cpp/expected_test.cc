// SPDX-License-Identifier: Apache-2.0
// Properties of an answer that its request determines, written out by hand.
#include "client/cpp/src/expected.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/unit/cpp/fake_server.h"

namespace attnbias::expected_test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

v1::TensorSpec Parsed(const std::string& text) {
  v1::TensorSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec)) << text;
  return spec;
}

// A request, and its answer: for each part its name, element type, form, shape
// and first relative position. "?" is a length that only the server knows.
struct Case {
  std::string request;
  std::string answer;
};

// The header of such an answer, in which all unknown lengths are `any`.
v1::TensorHeader HeaderOf(const Case& the_case, int64_t any = 3) {
  v1::TensorHeader header = MakeHeader("", "f");
  header.clear_parts();
  *header.mutable_resolved_spec() = Parsed(the_case.request);
  for (const absl::string_view text : absl::StrSplit(the_case.answer, " | ")) {
    const std::vector<std::string> words = absl::StrSplit(text, ' ');
    v1::TensorPart* part = header.add_parts();
    part->set_name(words[0]);
    v1::DataType type = v1::DATA_TYPE_UNSPECIFIED;
    EXPECT_TRUE(v1::DataType_Parse("DATA_TYPE_" + words[1], &type)) << text;
    part->set_data_type(type);
    v1::Form form = v1::FORM_UNSPECIFIED;
    EXPECT_TRUE(v1::Form_Parse("FORM_" + words[2], &form)) << text;
    part->set_form(form);
    for (const std::string& length : std::vector<std::string>(absl::StrSplit(words[3], ','))) {
      part->add_shape(length == "?" ? any : std::stoll(length));
    }
    if (words.size() > 4) part->set_first_relative_position(stoll(words[4]));
  }
  return header;
}

class Answer : public ::testing::TestWithParam<Case> {
 protected:
  // Returns the error of the answer after a change.
  static std::string Refused(const std::function<void(v1::TensorHeader*)>& change) {
    v1::TensorHeader header = HeaderOf(GetParam());
    change(&header);
    const absl::Status status = CheckAnswer(header, Parsed(GetParam().request));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    return std::string(status.message());
  }
};

TEST_P(Answer, IsAccepted) {
  for (const int64_t any : {1, 3}) {
    EXPECT_EQ(CheckAnswer(HeaderOf(GetParam(), any), Parsed(GetParam().request)), absl::OkStatus());
  }
}

TEST_P(Answer, IsNotAnyOther) {
  EXPECT_THAT(Refused([](auto* h) { h->add_parts()->set_name("more"); }),
              StartsWith("header.parts: got ["));
  EXPECT_THAT(Refused([](auto* h) { h->mutable_parts()->RemoveLast(); }),
              StartsWith("header.parts: got ["));
  for (int i = 0; i < HeaderOf(GetParam()).parts_size(); ++i) {
    const auto has = [&](const std::string& field, const auto& change) {
      EXPECT_THAT(Refused([&](auto* h) { change(h->mutable_parts(i)); }),
                  HasSubstr(absl::StrCat(" has ", field)));
    };
    EXPECT_THAT(Refused([&](auto* h) { h->mutable_parts(i)->set_name("bias"); }),
                StartsWith("header.parts: got ["));
    has("data_type F64", [](auto* part) { part->set_data_type(v1::DATA_TYPE_F64); });
    has("form 99", [](auto* part) { part->set_form(static_cast<v1::Form>(99)); });
    has("first_relative_position 7", [](auto* part) { part->set_first_relative_position(7); });
    has("shape []", [](auto* part) { part->clear_shape(); });
    has("shape [", [](auto* part) { part->mutable_shape()->RemoveLast(); });
    for (int axis = 0; axis < HeaderOf(GetParam()).parts(i).shape_size(); ++axis) {
      has("shape [", [axis](auto* part) { part->set_shape(axis, 0); });
      const int64_t length = HeaderOf(GetParam(), 1).parts(i).shape(axis);
      if (length != HeaderOf(GetParam(), 2).parts(i).shape(axis)) continue;
      has("shape [", [&](auto* part) { part->set_shape(axis, length + 1); });
    }
    // An axis of heads may be there if the request does not determine it.
    has("shape [", [](auto* part) {
      part->add_shape(1);
      part->add_shape(1);
    });
  }
}

constexpr char kCases[] = R"(
sinusoidal {dim: 6} table {positions {begin: -3 end: 4}} -> positions F32 TABLE 7,6
sinusoidal {dim: 6} table {position_ids {positions: [9, 1]}} output {data_type: DATA_TYPE_BF16}
    -> positions BF16 TABLE 2,6
sinusoidal {dim: 6} table {position_ids {doubles: [0.5, 1]}} -> positions F32 TABLE 2,6
learned_absolute {table {name: 'w'}} table {positions {end: 4}} -> positions F32 TABLE 4,?
learned_absolute {table {inline_table {shape: [9, 5]}}} table {positions {end: 4}}
    -> positions F32 TABLE 4,5
# floor(10 / 2) is 5, and 4 are even.
rotary {head_dim: 10 partial_rotary_factor: 0.5} table {positions {end: 4}}
    -> cos F32 TABLE 4,4 | sin F32 TABLE 4,4
rotary {head_dim: 10 layout: ROTARY_LAYOUT_COMPACT} table {positions {end: 4}}
    -> cos F32 TABLE 4,5 | sin F32 TABLE 4,5
rotary {head_dim: 8 proportional {} partial_rotary_factor: 0.5} table {positions {end: 4}}
    -> cos F32 TABLE 4,8 | sin F32 TABLE 4,8
sinusoidal {dim: 6 axes {} axes {} axis_dims: [4, 2]} table {grid: [2, 3]} output {form: FORM_DENSE}
    -> positions F32 DENSE 6,6
rotary {head_dim: 4 decay {}} table {positions {end: 1}}
    -> cos F32 TABLE 1,4 | sin F32 TABLE 1,4 | scale F32 TABLE 1,4
alibi {num_heads: 8} pair {query_length: 3 key_length: 5 alignment: ALIGNMENT_END}
    -> diagonals F32 TOEPLITZ 8,7 -4
alibi {num_heads: 8} pair {query_length: 9 key_length: 9 query_offset: 2
    queries {begin: 3 end: 5} keys {begin: 1 end: 4} heads {begin: 6 end: 8}}
    output {data_type: DATA_TYPE_F16} -> diagonals F16 TOEPLITZ 2,4 -5
alibi {num_heads: 8} pair {query_positions {positions: [4, 5, 6]} key_positions {positions: [2, 3]}}
    -> diagonals F32 TOEPLITZ 8,4 -4
alibi {num_heads: 8} pair {query_positions {positions: [4, 6]} key_positions {positions: [2, 3]}}
    -> dense F32 DENSE 8,2,2
alibi {num_heads: 8 variant: ALIBI_VARIANT_KEY_FROM_END} pair {query_length: 3 key_length: 5}
    -> row F32 KEY_ROW 8,5
t5 {num_heads: 8} pair {query_length: 3 key_length: 3} output {values: VALUES_BUCKETS}
    -> diagonals I32 TOEPLITZ 5 -2
# Without num_heads, what takes its place gives the number.
kerple {p: 1 a: [1, 2]} pair {query_length: 1 key_length: 1} -> diagonals F32 TOEPLITZ 2,1 0
alibi {slopes: [4, 2, 1]} pair {query_length: 1 key_length: 1} -> diagonals F32 TOEPLITZ 3,1 0
t5 {table {inline_table {shape: [32, 5]}}} pair {query_length: 1 key_length: 1}
    -> diagonals F32 TOEPLITZ 5,1 0
tupe {relative_table {inline_table {shape: [5, 32]} layout: TABLE_LAYOUT_HEADS_BUCKETS}}
    pair {query_length: 1 key_length: 1} -> diagonals F32 TOEPLITZ 5,1 0
fire {output_weight {inline_table {shape: [5, 32]}}} pair {query_length: 1 key_length: 1}
    -> dense F32 DENSE 5,1,1
mlp_bias {layers {} layers {weight {inline_table {shape: [5, 32]}}}}
    pair {query_length: 1 key_length: 1} -> diagonals F32 TOEPLITZ 5,1 0
mlp_bias {layers {weight {name: 'w'}}} pair {query_length: 1 key_length: 1}
    -> diagonals F32 TOEPLITZ ?,1 0
mlp_bias {} pair {query_length: 1 key_length: 1} -> diagonals F32 TOEPLITZ ?,1 0
mlp_bias {num_heads: 5 window: [2, 3]} -> block F32 BLOCK_TOEPLITZ 5,3,5
mlp_bias {num_heads: 5 window: [2, 3] class_token: true}
    -> block F32 BLOCK_TOEPLITZ 5,3,5 | border F32 TABLE 5,3
fire {num_heads: 2} pair {query_length: 3 key_length: 4} -> dense F32 DENSE 2,3,4
deberta {} pair {query_length: 3 key_length: 4} output {form: FORM_DENSE} -> dense I32 DENSE 3,4
learned_relative {vectors {sha256: 'ab'}} pair {query_length: 3 key_length: 4}
    -> diagonals F32 TOEPLITZ 6,? -2
learned_relative {vectors {sha256: 'ab'}} pair {query_length: 3 key_length: 4}
    -> diagonals F32 TOEPLITZ ?,6,? -2
learned_relative {vectors {inline_table {shape: [2, 7, 16]}}} pair {query_length: 3 key_length: 4}
    -> diagonals F32 TOEPLITZ 2,6,16 -2
learned_relative {scalars {inline_table {shape: [2, 7]} layout: TABLE_LAYOUT_HEADS_BUCKETS}}
    pair {query_length: 3 key_length: 4} -> diagonals F32 TOEPLITZ 2,6 -2
relative_sinusoidal {dim: 16} pair {query_length: 3 key_length: 3} -> diagonals F32 TOEPLITZ 5,16 -2
grid_relative {window: [2, 3] num_heads: 4} -> block F32 BLOCK_TOEPLITZ 4,3,5
grid_relative {window: [2, 3] num_heads: 4} grid {queries {begin: 1 end: 3}}
    -> dense F32 DENSE 4,2,6
grid_relative {window: [2, 3] num_heads: 4 class_token: true} grid {queries {end: 7}}
    -> block F32 BLOCK_TOEPLITZ 4,3,5 | border F32 TABLE 4,3
grid_relative {window: [2, 3] table {name: 'w'} class_token: true}
    -> block F32 BLOCK_TOEPLITZ ?,3,5 | border F32 TABLE ?,3
grid_relative {window: 3 num_heads: 4} grid {} -> block F32 BLOCK_TOEPLITZ 4,5
grid_relative {window: [4, 2, 3] num_heads: 4} grid {query_stride: [3, 2, 1]}
    -> block F32 BLOCK_TOEPLITZ 4,7,3,5
grid_relative {window: [4, 2, 3] num_heads: 4 class_token: true} grid {query_stride: [3, 2, 1]}
    output {form: FORM_DENSE} -> dense F32 DENSE 4,7,25
grid_relative {window: [2, 3] num_heads: 4} grid {query_stride: [2, 2] queries {begin: 1 end: 2}}
    -> dense F32 DENSE 4,1,6
tupe {num_heads: 4 reset_class_token: true} pair {query_length: 3 key_length: 3}
    -> diagonals F32 TOEPLITZ 4,5 -2 | border F32 TABLE 4,3
tupe {num_heads: 4 reset_class_token: true position_table {name: 'w'}}
    pair {query_length: 3 key_length: 3} -> dense F32 DENSE 4,3,3
)";

std::vector<Case> Cases() {
  std::vector<Case> cases;
  std::string request;
  for (const absl::string_view line : absl::StrSplit(kCases, '\n')) {
    const std::vector<std::string> halves = absl::StrSplit(line, "-> ");
    absl::StrAppend(&request, halves[0], "\n");
    if (halves.size() == 1) continue;
    cases.push_back({std::exchange(request, ""), halves[1]});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Requests, Answer, ::testing::ValuesIn(Cases()));

class Lie : public ::testing::Test {
 protected:
  Lie() {
    v1::TensorPart* part = header_.mutable_parts(0);
    part->mutable_shape()->Add(7);
    part->set_first_relative_position(-4);
    *header_.mutable_resolved_spec() = Parsed(
        "alibi { num_heads: 8 } pair { query_length: 3 key_length: 5 "
        "query_offset: 2 queries { end: 3 } keys { end: 5 } heads { "
        "end: 8 } }");
  }

  // Returns the error of a header after `change`.
  std::string Refused(const std::function<void(v1::TensorHeader*)>& change) {
    v1::TensorHeader header = header_;
    change(&header);
    const absl::Status status = CheckAnswer(header, spec_);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    return std::string(status.message());
  }

  const v1::TensorSpec spec_ = Parsed(
      "alibi { num_heads: 8 } pair { query_length: 3 key_length: 5 "
      "alignment: ALIGNMENT_END }");
  v1::TensorHeader header_ = MakeHeader(std::string(32, '\0'), "f");
};

TEST_F(Lie, IsQuotedBesideWhatIsWanted) {
  EXPECT_EQ(Refused([](auto* h) { h->mutable_parts(0)->set_shape(1, 6); }),
            "header: part diagonals has shape [8, 6], want [8, 7]");
  EXPECT_EQ(Refused([](auto* h) { h->mutable_parts(0)->set_form(v1::FORM_DENSE); }),
            "header: part diagonals has form DENSE, want TOEPLITZ");
  EXPECT_EQ(Refused([](auto* h) { h->mutable_parts(0)->set_data_type(v1::DATA_TYPE_I32); }),
            "header: part diagonals has data_type I32, want F32");
  EXPECT_EQ(Refused([](auto* h) { h->mutable_parts(0)->set_name("\x1b[2J"); }),
            "header.parts: got [\\x1b[2J], want [diagonals]");
  EXPECT_THAT(Refused([](auto* h) {
                for (int i = 0; i < 1000; ++i) *h->add_parts() = h->parts(0);
              }),
              EndsWith(", diagonals, ...], want [diagonals]"));
  EXPECT_LT(
      Refused([](auto* h) { h->mutable_parts(0)->set_name(std::string(1 << 20, 'x')); }).size(),
      200);
}

TEST_F(Lie, AboutTheRequestIsRefused) {
  for (const char* resolved : {"", "t5 { num_heads: 8 } pair { query_length: 3 key_length: 5 }",
                               "alibi { num_heads: 8 } table { positions { end: 3 } }",
                               // As many diagonals, from the same one on.
                               "alibi { num_heads: 8 } pair { query_length: 1 key_length: 7 "
                               "query_offset: 4 }",
                               "alibi { num_heads: 8 } pair { query_length: 3 key_length: 5 "
                               "query_offset: 2 heads { begin: 1 end: 9 } }",
                               "alibi { num_heads: 8 } pair { query_length: 3 key_length: 5 "
                               "query_offset: 2 } output { form: FORM_DENSE }"}) {
    EXPECT_THAT(Refused([&](auto* h) { *h->mutable_resolved_spec() = Parsed(resolved); }),
                HasSubstr("header.resolved_spec: got another request"))
        << resolved;
  }
}

TEST_F(Lie, IsAFingerprintOfOtherCharacters) {
  for (const std::string& value :
       {std::string(), std::string(63, 'a'), std::string(65, 'a'), std::string(64, 'A'),
        std::string(64, 'g'), std::string(64, '\n')}) {
    EXPECT_THAT(Refused([&](auto* h) { h->set_fingerprint(value); }),
                EndsWith("\", want 64 lowercase hex digits"));
    EXPECT_THAT(Refused([&](auto* h) { h->set_encoding_fingerprint(value); }),
                HasSubstr("header.encoding_fingerprint: got \""));
  }
}

TEST(CheckAnswer, ComparesTheColumnsOfAGridWithItsParts) {
  const Case the_case = {
      "sinusoidal { dim: 6 axes {} axes {} axis_dims: [4, 2] } table { grid: "
      "[2, 3] grid_offset: [0, 5] }",
      "positions.axis0 F32 TABLE 2,4 | positions.axis1 F32 TABLE 3,2"};
  const auto checked = [&](const std::vector<int32_t>& column_axes) {
    v1::TensorHeader header = HeaderOf(the_case);
    header.mutable_column_axes()->Add(column_axes.begin(), column_axes.end());
    return CheckAnswer(header, Parsed(the_case.request));
  };
  EXPECT_EQ(checked({0, 1, 0, 0, 1, 0}), absl::OkStatus());
  for (const auto& other : std::vector<std::vector<int32_t>>{{},
                                                             {0, 0, 0, 0, 1},
                                                             {0, 0, 0, 1, 1, 1},
                                                             {0, 0, 0, 0, 1, 2},
                                                             {0, 0, 0, 0, 1, -1},
                                                             {0, 0, 0, 0, 1, 1, 1}}) {
    EXPECT_EQ(checked(other), absl::DataLossError("header.column_axes: got other columns, want "
                                                  "those of the parts"));
  }
}

// Computed pair by pair.
std::vector<bool> Masked(const v1::Mask& mask, const std::vector<int64_t>& queries,
                         const std::vector<int64_t>& keys) {
  std::vector<bool> masked;
  for (const int64_t i : queries) {
    masked.push_back(absl::c_none_of(keys, [&](int64_t j) {
      return !(mask.causal() && j > i) && !(mask.has_window_left() && i - j > mask.window_left()) &&
             !(mask.has_window_right() && j - i > mask.window_right());
    }));
  }
  return masked;
}

TEST(CheckAnswer, RefusesOtherMaskedRows) {
  for (const char* mask :
       {"causal: true", "window_left: 2", "window_right: 0", "window_left: 0 window_right: 1",
        "causal: true window_left: 1", "window_left: 9223372036854775807 window_right: 1"}) {
    for (const std::vector<int64_t>& queries :
         std::vector<std::vector<int64_t>>{{-3, -2, -1, 0, 1, 2}, {6, 7, 8, 9}, {9, 0, 9, 2, -4}}) {
      for (const std::vector<int64_t>& keys :
           std::vector<std::vector<int64_t>>{{0, 1, 2}, {8, 0, 7}, {-9, 30, 1, 1}}) {
        const std::string request = absl::StrCat(
            "alibi { num_heads: 1 } pair { query_positions { positions: [",
            absl::StrJoin(queries, ","), "] } key_positions { positions: [",
            absl::StrJoin(keys, ","), "] } } output { form: FORM_DENSE mask { ", mask, " } }");
        SCOPED_TRACE(request);
        const v1::TensorSpec spec = Parsed(request);
        const std::string answer =
            absl::StrCat("dense F32 DENSE 1,", queries.size(), ",", keys.size());
        v1::TensorHeader header = HeaderOf({request, answer});
        const std::vector<bool> masked = Masked(spec.output().mask(), queries, keys);
        for (size_t i = 0; i < masked.size(); ++i) {
          if (!masked[i]) continue;
          if (i == 0 || !masked[i - 1]) {
            header.add_fully_masked_rows()->set_begin(static_cast<int64_t>(i));
          }
          header.mutable_fully_masked_rows()->rbegin()->set_end(static_cast<int64_t>(i) + 1);
        }
        EXPECT_EQ(CheckAnswer(header, spec), absl::OkStatus());
        header.add_fully_masked_rows()->set_end(9);
        EXPECT_THAT(std::string(CheckAnswer(header, spec).message()), HasSubstr("[0, 9]], want ["));
      }
    }
  }
}

// No header fits a request that no server takes, whatever its numbers are.
TEST(CheckAnswer, SurvivesEveryRequest) {
  constexpr const char* kLeast = "-9223372036854775808";
  constexpr const char* kMost = "9223372036854775807";
  for (const std::string low : {kLeast, "-1", "0", kMost}) {
    for (const std::string high : {kLeast, "-1", "0", kMost}) {
      for (const std::string& request :
           {absl::StrCat("sinusoidal { dim: -2147483648 } table { positions { "
                         "begin: ",
                         low, " end: ", high, " } }"),
            absl::StrCat("rotary { head_dim: -1 partial_rotary_factor: nan } "
                         "table { position_ids { positions: ",
                         low, " } }"),
            absl::StrCat("sinusoidal { dim: -1 axes {} } table { grid: [", low, ", ", high,
                         "] grid_offset: ", high, " }"),
            absl::StrCat("alibi { num_heads: -1 } pair { query_length: ", low,
                         " key_length: ", high, " alignment: ALIGNMENT_END }"),
            absl::StrCat("alibi { num_heads: -1 } pair { query_positions {} "
                         "query_offset: ",
                         low, " keys { begin: ", low, " end: ", high, "} }"),
            absl::StrCat("grid_relative { window: [-2147483648, 2147483647, "
                         "2147483647] num_heads: -1 class_token: true } grid { "
                         "queries { begin: ",
                         low, " end: ", high, " } }")}) {
        EXPECT_EQ(CheckAnswer(MakeHeader("", "f"), Parsed(request)).code(),
                  absl::StatusCode::kDataLoss)
            << request;
      }
    }
  }
}

}  // namespace
}  // namespace attnbias::expected_test
