// SPDX-License-Identifier: Apache-2.0
#include "server/header_bound.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "gtest/gtest.h"

namespace attnbias::header_bound_test {
namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr char kData = 0;
constexpr char kHeaders = 1;
constexpr char kContinuation = 9;

std::string Frame(char type, size_t size) {
  std::string frame = {static_cast<char>(size >> 16),
                       static_cast<char>(size >> 8),
                       static_cast<char>(size),
                       type,
                       0,
                       0,
                       0,
                       0,
                       1};
  // Payloads that look like heads of frames.
  while (frame.size() < 9 + size) frame += kContinuation;
  frame.resize(9 + size);
  return frame;
}

// How many bytes passed, given to it in pieces of one size.
size_t Passed(const std::string& bytes, size_t piece) {
  HeaderBound bound;
  size_t passed = 0;
  for (size_t begin = 0; begin < bytes.size(); begin += piece) {
    if (!bound.Pass(std::string_view(bytes).substr(begin, piece))) break;
    passed += std::min(piece, bytes.size() - begin);
  }
  return passed;
}

class HeaderBoundTest : public testing::TestWithParam<size_t> {};

TEST_P(HeaderBoundTest, EndsHeadersThatDoNotEnd) {
  std::string bytes(kPreface);
  bytes += Frame(kHeaders, 1000);
  while (bytes.size() < 2 * HeaderBound::kMaxBytes) {
    bytes += Frame(kContinuation, 1000);
  }
  EXPECT_LT(Passed(bytes, GetParam()),
            kPreface.size() + HeaderBound::kMaxBytes);
  EXPECT_GT(Passed(bytes, GetParam()) + GetParam(),
            HeaderBound::kMaxBytes - 1009);
}

TEST_P(HeaderBoundTest, EndsFramesWithoutBytes) {
  std::string bytes(kPreface);
  bytes += Frame(kHeaders, 0);
  while (bytes.size() < 2 * HeaderBound::kMaxBytes) {
    bytes += Frame(kContinuation, 0);
  }
  EXPECT_LT(Passed(bytes, GetParam()), bytes.size());
}

TEST_P(HeaderBoundTest, LetsManyCallsPass) {
  std::string bytes(kPreface);
  for (int call = 0; call < 20; ++call) {
    bytes += Frame(kHeaders, 10'000);
    bytes += Frame(kContinuation, 10'000);
    bytes += Frame(kData, 100'000);
  }
  EXPECT_EQ(Passed(bytes, GetParam()), bytes.size());
}

TEST_P(HeaderBoundTest, LetsOtherProtocolsPass) {
  std::string bytes(HeaderBound::kMaxBytes, kHeaders);
  bytes += bytes;
  EXPECT_EQ(Passed(bytes, GetParam()), bytes.size());
}

INSTANTIATE_TEST_SUITE_P(Pieces, HeaderBoundTest,
                         testing::Values(1, 8, 9, 10, 4096, 1 << 20));

TEST(HeaderBound, EndsForGood) {
  HeaderBound bound;
  EXPECT_TRUE(bound.Pass(kPreface));
  EXPECT_FALSE(bound.Pass(Frame(kHeaders, HeaderBound::kMaxBytes)));
  EXPECT_FALSE(bound.Pass(Frame(kHeaders, 1)));
}

}  // namespace
}  // namespace attnbias::header_bound_test
