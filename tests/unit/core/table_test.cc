// SPDX-License-Identifier: Apache-2.0
#include "core/table/table.h"

#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "tests/unit/support/status_matchers.h"

namespace attnbias::table_test {
namespace {

using ::testing::ElementsAre;

std::string BytesOf(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * 4};
}

const std::vector<float> kSix = {0.5, 1, 2, 3, 4, -5};

Table Six(std::vector<int64_t> shape, TableLayout layout = TableLayout::kBucketsHeads) {
  return *Table::Create(DataType::kF32, shape, BytesOf(kSix), layout);
}

TEST(Table, OneToThreeAxesReadTheSameNumbers) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{6}, {2, 3}, {3, 2}, {1, 2, 3}, {2, 3, 1}}) {
    const Table table = Six(shape);
    EXPECT_THAT(table.shape(), testing::ElementsAreArray(shape));
    EXPECT_EQ(table.rows(), shape[0]);
    EXPECT_EQ(table.columns(), 6 / shape[0]);
    ASSERT_EQ(table.size(), 6);
    for (int64_t i = 0; i < 6; ++i) {
      EXPECT_EQ(table.At(i), kSix[i]);
      EXPECT_EQ(table.At(i / table.columns(), i % table.columns()), kSix[i]);
    }
  }
}

TEST(Table, EveryTypeIsReadExactly) {
  const auto first = [](DataType type, std::string_view data) {
    return Table::Create(type, {1}, data, TableLayout::kBucketsHeads)->At(0);
  };
  // -1.5, and F16's smallest positive value.
  EXPECT_EQ(first(DataType::kF64, {"\0\0\0\0\0\0\xf8\xbf", 8}), -1.5);
  EXPECT_EQ(first(DataType::kF32, {"\0\0\xc0\xbf", 4}), -1.5);
  EXPECT_EQ(first(DataType::kF16, {"\0\xbe", 2}), -1.5);
  EXPECT_EQ(first(DataType::kBF16, {"\xc0\xbf", 2}), -1.5);
  EXPECT_EQ(first(DataType::kF16, {"\1\0", 2}), 0x1p-24);
}

TEST(Table, TransposedIsAnotherTableOverTheSameBytes) {
  const Table table = Six({2, 3}, TableLayout::kHeadsBuckets);
  EXPECT_THAT(table.shape(), ElementsAre(3, 2));
  const Table expected = *Table::Create(DataType::kF32, {3, 2}, BytesOf({0.5, 3, 1, 4, 2, -5}),
                                        TableLayout::kBucketsHeads);
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(table.At(i), expected.At(i));
    EXPECT_EQ(table.At(i / 2, i % 2), expected.At(i));
  }
  EXPECT_EQ(table.sha256(), expected.sha256());
  EXPECT_EQ(table.In(TableLayout::kBucketsHeads)->sha256(), table.sha256());
  EXPECT_EQ(table.In(TableLayout::kHeadsBuckets)->sha256(), Six({2, 3}).sha256());
}

// SHA-256 computed by another program over the bytes that CanonicalWriter documents.
TEST(Table, DigestsAreStable) {
  EXPECT_EQ(Six({2, 3}).sha256(),
            "8982fd3e208f70ab4aa7dba66e19a4b7ab6f66b20208aeac9e9b93ece61b95c0");
  EXPECT_EQ(Six({2, 3}, TableLayout::kHeadsBuckets).sha256(),
            "aaf89f6df8c1904442b093ff7a57237ac92fb5b9518602c7733c9d9b897eb550");
  EXPECT_EQ(Six({6}).sha256(), "f6b7312035011b70218eebbafc431ec36f3da64b67cc9460c3bfdbff219aabfd");
  EXPECT_EQ(Six({6, 1}).sha256(),
            "ab7a8f5105aaea2f8181daa201a8446a787781a3dd0784893996794530df653b");
  EXPECT_EQ(Six({1, 2, 3}).sha256(),
            "5f8d26309be16090199b66a2d5eb13ee2c9ef4c47f3b9292b4f593b876562060");
}

TEST(Table, ViewKeepsItsOwner) {
  auto bytes = std::make_shared<const std::string>("-" + BytesOf(kSix));
  std::weak_ptr<const std::string> watch = bytes;
  // Misaligned by one byte.
  absl::StatusOr<Table> table =
      Table::View(DataType::kF32, {6}, std::string_view(*bytes).substr(1), bytes);
  ASSERT_THAT(table, IsOk());
  bytes.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(table->At(5), -5);
  EXPECT_EQ(table->sha256(), Six({6}).sha256());
  table = absl::CancelledError();
  EXPECT_TRUE(watch.expired());
}

TEST(Table, RejectsInvalidTables) {
  constexpr int64_t kHuge = int64_t{1} << 31;
  struct Case {
    DataType type;
    std::vector<int64_t> shape;
    std::string data;
    TableLayout layout;
    const char* message;
  };
  const std::string six = BytesOf(kSix);
  constexpr auto kStraight = TableLayout::kBucketsHeads;
  const Case cases[] = {
      {DataType::kI32, {2, 3}, six, kStraight, "got data_type I32"},
      {DataType::kF32, {}, "", kStraight, "got shape [], want one to three"},
      {DataType::kF32, {1, 1, 1, 6}, six, kStraight, "got shape [1, 1, 1, 6]"},
      {DataType::kF32, {0, 3}, "", kStraight, "got shape [0, 3]"},
      {DataType::kF32, {-2, -3}, six, kStraight, "got shape [-2, -3]"},
      {DataType::kF32, {kHuge, kHuge}, "", kStraight, "got shape [2147483648"},
      {DataType::kF32, {2, 2}, six, kStraight, "got 24 bytes of data, want 16"},
      {DataType::kF32,
       {1, 3},
       BytesOf({1, 2, std::numeric_limits<float>::quiet_NaN()}),
       kStraight,
       "got nan at [0, 2], want finite"},
      {DataType::kF16,
       {1, 2, 1},
       {"\0\0\0\x7c", 4},
       kStraight,
       "got inf at [0, 1, 0], want finite"},
      {DataType::kF32,
       {6},
       six,
       TableLayout::kHeadsBuckets,
       "got layout HEADS_BUCKETS with shape [6], want two lengths"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(Table::Create(c.type, c.shape, c.data, c.layout), IsInvalidWith(c.message));
  }
}

}  // namespace
}  // namespace attnbias::table_test
