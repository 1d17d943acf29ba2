// SPDX-License-Identifier: Apache-2.0
// Tests requests that omit num_heads because a table or list has one entry per head.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/engine_harness.h"
#include "tests/unit/support/filled.h"

namespace attnbias::num_heads_test {
namespace {

v1::T5 T5Of(const v1::TableRef& table) {
  auto t5 = Parse<v1::T5>("bidirectional: true");
  *t5.mutable_table() = table;
  return t5;
}

v1::MlpBias Mlp(const std::string& fields) {
  auto bias = Parse<v1::MlpBias>("layers {} layers {} activation: ACTIVATION_RELU " + fields);
  *bias.mutable_layers(0)->mutable_weight() = RandomRef({5, bias.window_size() > 0 ? 2 : 1}, 1);
  *bias.mutable_layers(1)->mutable_weight() = RandomRef({3, 5}, 2);
  return bias;
}

TEST(NumHeads, OmissionKeepsTheFingerprint) {
  for (const v1::TensorSpec& spec :
       {OverPairs(SpecOf(T5Of(RandomRef({32, 3}, 1))), 4, 4), SpecOf(Mlp("window: [2, 2]")),
        OverPairs(SpecOf(Mlp("")), 4, 4),
        OverPairs(Parse<v1::TensorSpec>("alibi {slopes: [1, 0.5, 0.25]}"), 4, 4),
        OverPairs(Parse<v1::TensorSpec>("kerple {kernel: KERPLE_KERNEL_LOG p: 1 a: [1, 2, 3]}"), 4,
                  4)}) {
    const EncodingPtr encoding = MakeWith(spec);
    const v1::TensorSpec three = With(spec, std::string(encoding->name) + " {num_heads: 3}");
    SCOPED_TRACE(encoding->name);
    EXPECT_EQ(encoding->lanes, 3);
    EXPECT_EQ(encoding->identity, IdentityOf(three));
    EXPECT_EQ(EngineHarness().Plan(spec)->resolved_spec().ShortDebugString(),
              EngineHarness().Plan(three)->resolved_spec().ShortDebugString());
  }
}

TEST(NumHeads, FollowsTableLayout) {
  EXPECT_EQ(MakeWith(T5Of(Ref(*RandomTable({3, 32}, 1).In(TableLayout::kHeadsBuckets))))->lanes, 3);
}

TEST(NumHeads, MismatchHintsAtTableLayout) {
  EXPECT_THAT(RefusalOf(T5Of(RandomRef({3, 32}, 1))),
              IsInvalid("t5.table: got shape [3, 32], want [num_buckets, "
                        "num_heads] = [32, 32]; see the table's layout"));
}

TEST(NumHeads, IsRequiredWithOneSharedParameter) {
  EXPECT_THAT(RefusalOf(Parse<v1::Kerple>("kernel: KERPLE_KERNEL_LOG p: 1 a: 1")),
              IsInvalid("kerple.num_heads: not set"));
}

}  // namespace
}  // namespace attnbias::num_heads_test
