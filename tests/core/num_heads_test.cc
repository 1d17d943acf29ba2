// SPDX-License-Identifier: Apache-2.0
// num_heads left out beside a table or list that has one entry for each head.
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "core/encoding/make_encoding.h"
#include "core/encoding/spec/alibi.h"
#include "core/encoding/spec/dynamic_position_bias.h"
#include "core/encoding/spec/fire.h"
#include "core/encoding/spec/kerple.h"
#include "core/encoding/spec/relative_table.h"
#include "core/encoding/spec/swin.h"
#include "core/encoding/spec/swin_v2.h"
#include "core/encoding/spec/t5.h"
#include "core/encoding/spec/tupe.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/engine_harness.h"
#include "tests/testing/filled.h"
#include "tests/testing/status_matchers.h"

namespace attnbias::num_heads_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// Complete specs of three heads.
template <typename Spec>
Spec OfThreeHeads();
template <>
T5Spec OfThreeHeads() {
  return {.bidirectional = true, .table = RandomTable({32, 3}, 1)};
}
template <>
SwinSpec OfThreeHeads() {
  return {
      .window_height = 2, .window_width = 2, .table = RandomTable({9, 3}, 1)};
}
template <>
BeitSpec OfThreeHeads() {
  return {
      .window_height = 2, .window_width = 2, .table = RandomTable({12, 3}, 1)};
}
template <>
SwinV2Spec OfThreeHeads() {
  return {.window_height = 2,
          .window_width = 2,
          .hidden_weight = RandomTable({5, 2}, 1),
          .hidden_bias = RandomTable({5}, 2),
          .output_weight = RandomTable({3, 5}, 3)};
}
template <>
LearnedRelativeSpec OfThreeHeads() {
  return {.table = RandomTable({5, 3}, 1), .left = 2, .right = 2};
}
template <>
FireSpec OfThreeHeads() {
  return {.hidden_weight = RandomTable({5, 1}, 1),
          .output_weight = RandomTable({3, 5}, 2)};
}
template <>
DynamicPositionBiasSpec OfThreeHeads() {
  return {.layers = {{.weight = RandomTable({5, 1}, 1)},
                     {.weight = RandomTable({3, 5}, 2)}}};
}
template <>
TupeSpec OfThreeHeads() {
  return {.relative_table = RandomTable({32, 3}, 1),
          .position_table = RandomTable({7, 12}, 2),
          .query_weight = RandomTable({12, 12}, 3),
          .query_bias = RandomTable({12}, 4),
          .key_weight = RandomTable({12, 12}, 5),
          .key_bias = RandomTable({12}, 6)};
}
template <>
AlibiSpec OfThreeHeads() {
  return {.slopes = {1, 0.5, 0.25}};
}
template <>
KerpleSpec OfThreeHeads() {
  return {.kernel = KerpleKernel::kLog, .p = {1}, .a = {1, 2, 3}};
}

template <typename Spec>
class NumHeads : public testing::Test {};

using Specs =
    testing::Types<T5Spec, SwinSpec, BeitSpec, SwinV2Spec, LearnedRelativeSpec,
                   FireSpec, DynamicPositionBiasSpec, TupeSpec, AlibiSpec,
                   KerpleSpec>;
TYPED_TEST_SUITE(NumHeads, Specs);

TYPED_TEST(NumHeads, LeftOutIsTheSameRequest) {
  const auto spec = OfThreeHeads<TypeParam>();
  auto explicit_heads = spec;
  explicit_heads.num_heads = 3;
  const auto encoding = MakeEncoding(spec, Output());
  ASSERT_THAT(encoding, IsOk());
  EXPECT_EQ((*encoding)->lanes, 3);
  EXPECT_EQ(IdentityOf(spec), IdentityOf(explicit_heads));
}

TYPED_TEST(NumHeads, IsInTheResolvedSpec) {
  const EngineHarness engine;
  TensorSpec request;
  request.encoding = OfThreeHeads<TypeParam>();
  if ((*MakeEncoding(request.encoding, Output()))->structure ==
      Structure::kBlockToeplitz2D) {
    request.extent = GridExtent{};
  } else {
    request.extent = PairOf(4, 4);
  }
  const PlanPtr plan = engine.Plan(request);
  EXPECT_EQ(plan->resolved_spec().encoding.template As<TypeParam>()->num_heads,
            3);
}

TYPED_TEST(NumHeads, OtherThanTheTablesIsNamed) {
  auto spec = OfThreeHeads<TypeParam>();
  spec.num_heads = 2;
  EXPECT_THAT(MakeEncoding(spec, Output()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith(std::string(TypeParam::kName) + "."),
                             HasSubstr(": got "), HasSubstr("3"),
                             HasSubstr("2 "), HasSubstr("(num_heads)"))));
}

TEST(DerivedNumHeads, OfATableInTheOtherLayout) {
  T5Spec spec = OfThreeHeads<T5Spec>();
  spec.table = *RandomTable({3, 32}, 1).In(TableLayout::kHeadsBuckets);
  EXPECT_EQ((*MakeEncoding(spec, Output()))->lanes, 3);
}

TEST(DerivedNumHeads, OfAForgottenLayoutIsRefused) {
  T5Spec spec = OfThreeHeads<T5Spec>();
  spec.table = RandomTable({3, 32}, 1);
  EXPECT_THAT(MakeEncoding(spec, Output()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("t5.table: got shape [3, 32], want [32 "
                                  "buckets, 32 heads (num_heads)]; see the "
                                  "table's layout")));
}

TEST(DerivedNumHeads, OfASharedColumnIsOne) {
  LearnedRelativeSpec spec = OfThreeHeads<LearnedRelativeSpec>();
  spec.table = RandomTable({5, 1}, 1);
  EXPECT_EQ((*MakeEncoding(spec, Output()))->lanes, 1);
}

TEST(DerivedNumHeads, IsNeededBesideAParameterOfAllHeads) {
  KerpleSpec spec = OfThreeHeads<KerpleSpec>();
  spec.a = {1};
  EXPECT_THAT(MakeEncoding(spec, Output()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("kerple.num_heads: not set")));
}

}  // namespace
}  // namespace attnbias::num_heads_test
