// SPDX-License-Identifier: Apache-2.0
#include "server/trace_context.h"

#include <string>

#include "gtest/gtest.h"

namespace attnbias::trace_context_test {
namespace {

// The standard's own example.
const std::string kExample =
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

std::string With(size_t at, const std::string& text) {
  std::string changed = kExample;
  return changed.replace(at, text.size(), text);
}

TEST(ParseTraceParent, TakesWhatTheStandardHas) {
  EXPECT_EQ(ParseTraceParent(kExample), kExample);
  EXPECT_EQ(ParseTraceParent(With(53, "00")), With(53, "00"));
}

TEST(ParseTraceParent, TakesTheKnownPartOfLaterVersions) {
  const std::string later = With(0, "cc");
  EXPECT_EQ(ParseTraceParent(later), later);
  EXPECT_EQ(ParseTraceParent(later + "-what-the-future-will-be-like"), later);
  EXPECT_EQ(ParseTraceParent(later + "-" + std::string(10'000, '\n')), later);
  EXPECT_EQ(ParseTraceParent(later + ".what-the-future"), "");
}

class Malformed : public testing::TestWithParam<std::string> {};

TEST_P(Malformed, IsNoTrace) { EXPECT_EQ(ParseTraceParent(GetParam()), ""); }

INSTANTIATE_TEST_SUITE_P(
    TraceParents, Malformed,
    testing::Values("", "-", kExample.substr(1), kExample.substr(0, 54),
                    " " + kExample, kExample + " ", kExample + "-",
                    kExample + "-00", With(0, "ff"), With(0, "0A"),
                    With(0, "g0"), With(2, "_"), With(3, std::string(32, '0')),
                    With(3, "4BF9"), With(20, "\n"), With(35, "0"),
                    With(36, std::string(16, '0')), With(40, "z"),
                    With(52, " "), With(53, "0\""), With(54, "G"),
                    std::string(55, '0'), std::string(100'000, 'a')));

// The places of all bytes matter: another byte anywhere is no trace, or another
// one.
TEST(ParseTraceParent, LetsNothingThroughThatIsNotHexOrADash) {
  for (size_t at = 0; at < kExample.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      const std::string text =
          With(at, std::string(1, static_cast<char>(byte)));
      const std::string_view parsed = ParseTraceParent(text);
      EXPECT_TRUE(parsed.empty() || parsed == text);
      if (!parsed.empty()) {
        EXPECT_EQ(text.find_first_not_of("0123456789abcdef-"),
                  std::string::npos);
      }
    }
  }
}

}  // namespace
}  // namespace attnbias::trace_context_test
