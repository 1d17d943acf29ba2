// SPDX-License-Identifier: Apache-2.0
// An index map equals the list that it represents.
#include <array>
#include <vector>

#include "core/tensor/positions.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnbias::index_map_test {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> Listed(const IndexMap& map) {
  std::vector<int64_t> list;
  for (int64_t i = 0; i < map.size(); ++i) list.push_back(map.At(i));
  return list;
}

// Checks RunOf and step() of an index map against its integers.
void ExpectConsistent(const IndexMap& map) {
  const std::vector<int64_t> list = Listed(map);
  for (int64_t begin = 0; begin < map.size(); ++begin) {
    for (int64_t end = begin + 1; end <= map.size(); ++end) {
      const int64_t run = map.RunOf({begin, end});
      ASSERT_GT(run, 0);
      ASSERT_LE(begin + run, end);
      for (int64_t i = begin + 1; i < begin + run; ++i) {
        EXPECT_EQ(list[i], list[i - 1] + 1);
      }
    }
  }
  for (int64_t i = 1; map.is_even() && i < map.size(); ++i) {
    EXPECT_EQ(list[i] - list[i - 1], map.step());
  }
}

TEST(IndexMap, IsARangeAListOrZeros) {
  const IndexMap range = IndexMap(Range{-2, 3}) - 10;
  EXPECT_THAT(Listed(range), ElementsAre(-12, -11, -10, -9, -8));
  EXPECT_TRUE(range.is_range());
  EXPECT_EQ(range.RunOf({1, 4}), 3);
  ExpectConsistent(range);

  const Positions positions({7, 8, 9, 3, 5, 6});
  const IndexMap list = IndexMap(positions) - 3;
  EXPECT_THAT(Listed(list), ElementsAre(4, 5, 6, 0, 2, 3));
  EXPECT_FALSE(list.is_even());
  EXPECT_EQ(list.RunOf({0, 6}), 3);
  EXPECT_EQ(list.RunOf({4, 6}), 2);
  ExpectConsistent(list);

  const IndexMap zeros = IndexMap::Zeros(3);
  EXPECT_THAT(Listed(zeros), ElementsAre(0, 0, 0));
  EXPECT_TRUE(zeros.is_even());
  EXPECT_EQ(zeros.step(), 0);
  ExpectConsistent(zeros);
}

TEST(IndexMap, TokensCanStartAnywhereInTheGrid) {
  const std::array<IndexMap::Axis, 2> axes = {{{4, 5}, {3, 1}}};
  EXPECT_THAT(Listed(IndexMap::Tokens(0, 6, axes)), ElementsAre(0, 1, 2, 5, 6, 7));
  EXPECT_THAT(Listed(IndexMap::Tokens(2, 3, axes)), ElementsAre(2, 5, 6));
  EXPECT_THAT(Listed(IndexMap::Tokens(-1, 4, axes) - 7), ElementsAre(-7, -7, -6, -5));
  EXPECT_TRUE(IndexMap::Tokens(3, 3, axes).is_range());
  EXPECT_EQ(IndexMap::Tokens(1, 5, axes).RunOf({0, 5}), 2);
}

TEST(IndexMap, TokensCountAlongEveryAxis) {
  for (const int64_t planes : {1, 2}) {
    for (const int64_t rows : {1, 3}) {
      for (const int64_t width : {1, 2, 7}) {
        for (const int64_t stride : {1, 2}) {
          const std::array<IndexMap::Axis, 3> axes = {
              {{planes, 100}, {rows, 2 * 13}, {width, stride}}};
          std::vector<int64_t> whole = {0};
          for (int64_t n = 0; n < planes * rows * width; ++n) {
            whole.push_back(n / width / rows * 100 + n / width % rows * 26 + n % width * stride);
          }
          const auto tokens = std::ssize(whole) - 1;
          for (int64_t first = -1; first < tokens; ++first) {
            for (int64_t size = 1; size <= tokens - first; ++size) {
              const IndexMap map = IndexMap::Tokens(first, size, axes);
              EXPECT_EQ(Listed(map), std::vector<int64_t>(whole.begin() + first + 1,
                                                          whole.begin() + first + 1 + size));
              ExpectConsistent(map);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace attnbias::index_map_test
