// SPDX-License-Identifier: Apache-2.0
// Tests reading elements of every type as numbers, and previewing them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "client/cli/report.h"

namespace attnbias::numbers_test {
namespace {

template <typename T>
double Element(v1::DataType type, T value) {
  std::byte bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  return ReadElement(type, bytes);
}

TEST(ReadElement, ReadsEveryType) {
  EXPECT_EQ(Element(v1::DATA_TYPE_F64, 0.1), 0.1);
  EXPECT_EQ(Element(v1::DATA_TYPE_F32, 0.1f), 0.1f);
  EXPECT_EQ(Element(v1::DATA_TYPE_I32, int32_t{-7}), -7);
  EXPECT_EQ(Element(v1::DATA_TYPE_BF16, uint16_t{0xc049}), -3.140625);
  EXPECT_EQ(Element(v1::DATA_TYPE_BF16, uint16_t{0xff80}), -INFINITY);
}

// Compares with the compiler's own conversion from IEEE 754 binary16.
TEST(ReadElement, ReadsEveryHalf) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto narrow = static_cast<uint16_t>(bits);
    _Float16 half;
    std::memcpy(&half, &narrow, 2);
    const double got = Element(v1::DATA_TYPE_F16, narrow);
    const auto want = static_cast<double>(half);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << bits;
    } else {
      EXPECT_EQ(got, want) << bits;
      EXPECT_EQ(std::signbit(got), std::signbit(want)) << bits;
    }
  }
}

std::string Preview(const std::vector<int64_t>& shape, const v1::Range* heads = nullptr) {
  v1::TensorPart part;
  part.set_data_type(v1::DATA_TYPE_I32);
  int64_t size = 1;
  for (const int64_t length : shape) {
    part.add_shape(length);
    size *= length;
  }
  std::vector<int32_t> values(size);
  for (int32_t i = 0; i < size; ++i) values[i] = i;
  return PreviewNumbers(
      part,
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()), values.size() * 4),
      heads);
}

TEST(PreviewNumbers, ShowsSmallTensorsWhole) {
  EXPECT_EQ(Preview({2, 3}),
            "            0            1            2\n"
            "            3            4            5\n");
  EXPECT_EQ(Preview({2}), "            0            1\n");
}

TEST(PreviewNumbers, ShowsCornersOfLargeTensors) {
  EXPECT_EQ(Preview({2, 100, 7}),
            "            0            1            2  ...            4"
            "            5            6\n"
            "            7            8            9  ...           11"
            "           12           13\n"
            "           14           15           16  ...           18"
            "           19           20\n"
            "  ...\n"
            "          679          680          681  ...          683"
            "          684          685\n"
            "          686          687          688  ...          690"
            "          691          692\n"
            "          693          694          695  ...          697"
            "          698          699\n");
}

TEST(PreviewNumbers, LabelsHeads) {
  v1::Range heads;
  EXPECT_EQ(Preview({2, 2}, &heads),
            "head 0                0            1\n"
            "head 1                2            3\n");
  heads.set_begin(14);
  EXPECT_EQ(Preview({2, 1, 2}, &heads),
            "head 14:\n"
            "            0            1\n");
}

TEST(PreviewNumbers, EmptyTensorHasNoPreview) { EXPECT_EQ(Preview({0, 4}), ""); }

}  // namespace
}  // namespace attnbias::numbers_test
