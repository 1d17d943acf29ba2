// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "server/service/messages.h"
#include "tests/unit/core/logits_requests.h"
#include "tests/unit/support/engine_harness.h"

namespace attnbias::headers_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

template <typename Message>
void ExpectEqual(const Message& message, const std::string& text) {
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(
      message, Parse<Message>(text)))
      << message.DebugString();
}

// Returns the header of a request, without the fingerprints, which are its
// plan's.
v1::TensorHeader Header(const std::string& request) {
  const EngineHarness engine;
  const PlanPtr plan = engine.Plan(Parse<v1::TensorSpec>(request));
  v1::TensorHeader header = HeaderOf(*plan);
  EXPECT_EQ(header.fingerprint(), plan->fingerprint());
  EXPECT_EQ(header.encoding_fingerprint(), plan->encoding_fingerprint());
  header.clear_fingerprint();
  header.clear_encoding_fingerprint();
  return header;
}

TEST(Headers, DescribeEveryPartAndWhatIsDerived) {
  ExpectEqual(
      Header("rotary {head_dim: 4 rope_theta: 4} table {positions {end: 5}}"),
      "parts {name: 'cos' data_type: DATA_TYPE_F32 form: FORM_TABLE"
      "  shape: [5, 4] size_bytes: 80}"
      "parts {name: 'sin' data_type: DATA_TYPE_F32 form: FORM_TABLE"
      "  shape: [5, 4] offset: 80 size_bytes: 80}"
      "total_bytes: 160 "
      "resolved_spec {"
      "  rotary {head_dim: 4 rope_theta: 4 partial_rotary_factor: 1"
      "    layout: ROTARY_LAYOUT_HALF"
      "    angle: ANGLE_PRECISION_EXACT}"
      "  table {positions {begin: 0 end: 5}}"
      "  output {data_type: DATA_TYPE_F32 form: FORM_TABLE"
      "    values: VALUES_BIAS scale: 1}}"
      "derived {name: 'inverse_frequencies' values: [1, 0.5]}"
      "derived {name: 'attention_factor' values: 1}"
      "derived {name: 'rope_theta' values: 4}");
}

TEST(Headers, TellWhereDiagonalsBeginAndWhichRowsAreMasked) {
  ExpectEqual(
      Header("alibi {num_heads: 2} "
             "pair {query_length: 3 key_length: 9 query_offset: -1"
             "  keys {begin: 2 end: 9}} "
             "output {mask {causal: true}}"),
      "parts {name: 'diagonals' data_type: DATA_TYPE_F32 form: FORM_TOEPLITZ"
      "  shape: [2, 9] size_bytes: 72 first_relative_position: 1}"
      "total_bytes: 72 "
      "resolved_spec {"
      "  alibi {num_heads: 2 alibi_bias_max: 8"
      "    variant: ALIBI_VARIANT_SYMMETRIC}"
      "  pair {query_length: 3 key_length: 9 query_offset: -1"
      "    queries {begin: 0 end: 3} keys {begin: 2 end: 9}"
      "    heads {begin: 0 end: 2}}"
      "  output {data_type: DATA_TYPE_F32 form: FORM_TOEPLITZ"
      "    values: VALUES_BIAS scale: 1"
      "    mask {causal: true fill_value: -inf}}}"
      "fully_masked_rows {begin: 0 end: 3}");
}

TEST(Headers, TellTheAxesOfColumnsOverAGrid) {
  const std::string request =
      "rotary {head_dim: 6 axes {} axes {} pair_axis: [0, 1, 0]} "
      "table {grid: [1, 2]} ";
  EXPECT_THAT(Header(request).column_axes(), ElementsAre(0, 1, 0, 0, 1, 0));
  EXPECT_THAT(Header(request + "output {form: FORM_DENSE}").column_axes(),
              IsEmpty());
}

TEST(Headers, OfLogitsTellTypesAndRoundings) {
  v1::LogitsSpec spec = Base(3, 7);
  spec.set_output_data_type(v1::DATA_TYPE_BF16);
  *spec.mutable_shaw_keys() = ShawKeys(2, 2, spec.head_dim());
  ExpectEqual(HeaderOf(**PlanOf(spec)),
              "num_heads: 3 width: 7 data_type: DATA_TYPE_BF16 query_offset: 4 "
              "work_data_type: DATA_TYPE_F32 roundings: 5");
  *spec.mutable_shaw_values() = ShawKeys(2, 2, spec.head_dim());
  EXPECT_EQ(HeaderOf(**PlanOf(spec)).width(), spec.head_dim());
}

}  // namespace
}  // namespace attnbias::headers_test
