// SPDX-License-Identifier: Apache-2.0
#include "server/service/call.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace attnbias::call_test {
namespace {

TEST(RequestId, UsesValidClientId) {
  for (const std::string& id :
       {std::string("7"), std::string("f058ebd6-02f7-4d3f-942e-904344e8cde5"),
        std::string("Root=1-67891233-abcdef012345678912345678"), std::string("a/b+c:d_e.f"),
        std::string(128, 'x')}) {
    EXPECT_EQ(RequestId(id), id);
  }
}

TEST(RequestId, ReplacesMissingOrInvalidClientId) {
  std::set<std::string> made;
  const std::string insane[] = {"",
                                "a b",
                                "a\nb",
                                "a\"b",
                                std::string("a\0b", 3),
                                "\x1b[2J",
                                "\xc3\xa9",
                                std::string(129, 'x'),
                                std::string(100'000, 'x')};
  for (const std::string& given : insane) {
    const std::string id = RequestId(given);
    EXPECT_NE(id, given);
    EXPECT_LT(id.size(), 40u);
    EXPECT_EQ(RequestId(id), id) << "a generated id is itself valid";
    made.insert(id);
  }
  EXPECT_EQ(made.size(), std::size(insane));
}

}  // namespace
}  // namespace attnbias::call_test
