// SPDX-License-Identifier: Apache-2.0
// Elements against those of another arithmetic, in another language: mpmath's,
// as tests/conformance/golden/make_golden.py wrote them.
#include <cstdint>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/encoding/sinusoidal_oracle.h"
#include "tests/unit/support/filled.h"

namespace attnbias::golden_test {
namespace {

struct GoldenSinusoid {
  int32_t dim;
  double base;
  int64_t position;
  int64_t column;
  uint64_t bits;
  DataType type;
  SinusoidLayout layout;
};

struct GoldenAlibi {
  int32_t num_heads;
  int64_t head;
  int64_t relative_position;
  uint64_t bits;
  DataType type;
};

#include "tests/conformance/golden/golden.inc"

uint64_t BitsAt(const std::byte* data, DataType type) {
  uint64_t bits = 0;
  std::memcpy(&bits, data, SizeOf(type));
  return bits;
}

TEST(Golden, Sinusoids) {
  for (const GoldenSinusoid& golden : kGoldenSinusoids) {
    const v1::Sinusoidal spec = MessageOf(
        {.dim = golden.dim, .base = golden.base, .layout = golden.layout});
    const auto evaluator =
        MakeWith(spec)->prepare({golden.type}, *SupportedKernelSets().front());
    std::vector<std::byte> row(golden.dim * SizeOf(golden.type));
    evaluator->Fill({{0, 1}, {golden.position, golden.position + 1}},
                    row.data(), 0);
    EXPECT_EQ(BitsAt(&row[golden.column * SizeOf(golden.type)], golden.type),
              golden.bits)
        << NameOf(golden.type) << " dim " << golden.dim << " position "
        << golden.position << " column " << golden.column;
  }
}

TEST(Golden, Alibis) {
  for (const GoldenAlibi& golden : kGoldenAlibis) {
    v1::Alibi spec;
    spec.set_num_heads(golden.num_heads);
    const auto evaluator =
        MakeWith(spec)->prepare({golden.type}, *SupportedKernelSets().front());
    std::byte element[8];
    evaluator->Fill({{golden.head, golden.head + 1},
                     {golden.relative_position, golden.relative_position + 1}},
                    element, 0);
    EXPECT_EQ(BitsAt(element, golden.type), golden.bits)
        << NameOf(golden.type) << " head " << golden.head << " of "
        << golden.num_heads << " at " << golden.relative_position;
  }
}

}  // namespace
}  // namespace attnbias::golden_test
