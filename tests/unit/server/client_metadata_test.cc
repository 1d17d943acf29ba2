// SPDX-License-Identifier: Apache-2.0
#include "server/access/client_metadata.h"

#include "gtest/gtest.h"

namespace attnbias::client_metadata_test {
namespace {

TEST(OnlyValue, IsThatOfAKeyThatIsGivenOnce) {
  const ClientMetadata metadata = {
      {"once", "1"}, {"twice", "1"}, {"twice", "1"}, {"zero", ""}};
  EXPECT_EQ(OnlyValue(metadata, "once"), "1");
  EXPECT_EQ(OnlyValue(metadata, "twice"), "");
  EXPECT_EQ(OnlyValue(metadata, "zero"), "");
  EXPECT_EQ(OnlyValue(metadata, "absent"), "");
}

}  // namespace
}  // namespace attnbias::client_metadata_test
