// SPDX-License-Identifier: Apache-2.0
#include "server/overload_gate.h"

#include "gtest/gtest.h"

namespace attnbias::overload_gate_test {
namespace {

TEST(OverloadGate, ClosesHighAndOpensLow) {
  OverloadGate gate;
  EXPECT_FALSE(gate.Update(0));
  EXPECT_FALSE(gate.Update(0.94));
  EXPECT_TRUE(gate.Update(0.95));
  EXPECT_TRUE(gate.Update(0.85)) << "wavering just below does not reopen it";
  EXPECT_FALSE(gate.Update(0.79));
  EXPECT_FALSE(gate.Update(0.85)) << "nor is wavering above a new overload";
}

}  // namespace
}  // namespace attnbias::overload_gate_test
