// SPDX-License-Identifier: Apache-2.0
#include "attnbias/toeplitz.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace attnbias::toeplitz_test {
namespace {

constexpr int64_t kQueries = 3;
constexpr int64_t kKeys = 5;
constexpr int64_t kDiagonals = kQueries + kKeys - 1;

v1::TensorHeader Header(v1::TensorSpec spec, v1::DataType type, const std::vector<int64_t>& shape) {
  v1::TensorHeader header;
  spec.mutable_pair()->mutable_queries()->set_end(kQueries);
  spec.mutable_pair()->mutable_keys()->set_end(kKeys);
  const size_t inner_axes = spec.has_learned_relative() ? 2 : 1;
  if (shape.size() > inner_axes) {
    spec.mutable_pair()->mutable_heads()->set_end(shape[0]);
  }
  *header.mutable_resolved_spec() = spec;
  v1::TensorPart& part = *header.add_parts();
  part.set_name("diagonals");
  part.set_form(v1::FORM_TOEPLITZ);
  part.set_data_type(type);
  part.mutable_shape()->Assign(shape.begin(), shape.end());
  part.set_size_bytes(
      std::accumulate(shape.begin(), shape.end(), ElementSize(type), std::multiplies<>()));
  header.set_total_bytes(part.size_bytes());
  return header;
}

v1::TensorSpec Alibi() {
  v1::TensorSpec spec;
  spec.mutable_alibi();
  return spec;
}

v1::TensorSpec Vectors() {
  v1::TensorSpec spec;
  spec.mutable_learned_relative()->mutable_vectors();
  return spec;
}

// The elements 0, 1, 2, ...
template <typename T>
Tensor Counting(const v1::TensorHeader& header) {
  const std::shared_ptr<std::byte[]> bytes(new std::byte[header.total_bytes()]);
  for (size_t i = 0; i < header.total_bytes() / sizeof(T); ++i) {
    const T value = static_cast<T>(i);
    std::memcpy(bytes.get() + i * sizeof(T), &value, sizeof(T));
  }
  return {header, bytes};
}

TEST(Toeplitz, ElementsMatchTheirDiagonal) {
  const auto bias =
      Toeplitz<float>::Of(Counting<float>(Header(Alibi(), v1::DATA_TYPE_F32, {2, kDiagonals})));
  ASSERT_TRUE(bias.ok()) << bias.status();
  EXPECT_EQ(bias->columns(), 1);
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t i = 0; i < kQueries; ++i) {
      ASSERT_EQ(bias->row(h, i).size(), static_cast<size_t>(kKeys));
      for (int64_t j = 0; j < kKeys; ++j) {
        const auto want = static_cast<float>(h * kDiagonals + j - i + 2);
        EXPECT_EQ((*bias)(h, i, j), want);
        EXPECT_EQ(bias->row(h, i)[j], want);
        EXPECT_EQ(bias->data()[h * bias->stride(0) + i * bias->stride(1) + j * bias->stride(2)],
                  want);
      }
    }
  }
}

TEST(Toeplitz, VectorsHaveColumns) {
  for (const int64_t heads : {1, 2}) {
    std::vector<int64_t> shape = {kDiagonals, 4};
    if (heads > 1) shape.insert(shape.begin(), heads);
    const auto vectors =
        Toeplitz<double>::Of(Counting<double>(Header(Vectors(), v1::DATA_TYPE_F64, shape)));
    ASSERT_TRUE(vectors.ok()) << vectors.status();
    EXPECT_EQ(vectors->heads(), heads);
    EXPECT_EQ(vectors->columns(), 4);
    EXPECT_EQ((*vectors)(heads - 1, 1, 3, 2), ((heads - 1) * kDiagonals + 3 - 1 + 2) * 4 + 2);
    EXPECT_EQ(vectors->row(0, 2).size(), 20U);
    EXPECT_EQ(vectors->row(0, 2)[5], 5);
  }
}

TEST(Toeplitz, WindowSharesMemory) {
  const auto whole =
      Toeplitz<int32_t>::Of(Counting<int32_t>(Header(Alibi(), v1::DATA_TYPE_I32, {2, kDiagonals})));
  ASSERT_TRUE(whole.ok()) << whole.status();
  const auto once = whole->Window({1, 2}, {1, 3}, {2, 5});
  ASSERT_TRUE(once.ok()) << once.status();
  const auto twice = once->Window({0, 1}, {1, 2}, {1, 3});
  ASSERT_TRUE(twice.ok()) << twice.status();
  EXPECT_EQ(twice->queries(), 1);
  EXPECT_EQ(twice->keys(), 2);
  EXPECT_EQ(&twice->row(0, 0)[0], &whole->row(1, 2)[3]);
  EXPECT_EQ((*twice)(0, 0, 1), (*whole)(1, 2, 4));
}

TEST(Toeplitz, RejectsWindowOutOfRange) {
  const auto whole =
      Toeplitz<float>::Of(Counting<float>(Header(Alibi(), v1::DATA_TYPE_F32, {2, kDiagonals})));
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->Window({0, 2}, {0, 4}, {0, 5}).status().message(),
            "queries: got [0, 4), want a nonempty part of [0, 3)");
  EXPECT_EQ(whole->Window({0, 2}, {0, 3}, {2, 2}).status().message(),
            "keys: got [2, 2), want a nonempty part of [0, 5)");
  EXPECT_EQ(whole->Window({-1, 2}, {0, 3}, {0, 5}).status().message(),
            "heads: got [-1, 2), want a nonempty part of [0, 2)");
}

TEST(Toeplitz, RejectsOtherElementTypes) {
  const auto message = [](const v1::DataType type, auto zero) {
    const auto header = Header(Alibi(), type, {2, kDiagonals});
    return std::string(Toeplitz<decltype(zero)>::Of(Counting<char>(header)).status().message());
  };
  EXPECT_EQ(message(v1::DATA_TYPE_BF16, uint16_t{}), "");
  EXPECT_EQ(message(v1::DATA_TYPE_F16, uint16_t{}), "");
  EXPECT_EQ(message(v1::DATA_TYPE_BF16, float{}),
            "tensor: got elements of DATA_TYPE_BF16, want reals of 4 bytes");
  EXPECT_EQ(message(v1::DATA_TYPE_I32, float{}),
            "tensor: got elements of DATA_TYPE_I32, want reals of 4 bytes");
  EXPECT_EQ(message(v1::DATA_TYPE_F32, int32_t{}),
            "tensor: got elements of DATA_TYPE_F32, want integers of 4 bytes");
}

TEST(Toeplitz, RejectsOtherForms) {
  auto dense = Header(Alibi(), v1::DATA_TYPE_F32, {2, kQueries, kKeys});
  dense.mutable_parts(0)->set_form(v1::FORM_DENSE);
  dense.mutable_parts(0)->set_name("dense");
  EXPECT_EQ(Toeplitz<float>::Of(Counting<float>(dense)).status(),
            absl::InvalidArgumentError("tensor: got dense, want diagonals only (form TOEPLITZ)"));
  auto bordered = Header(Alibi(), v1::DATA_TYPE_F32, {2, kDiagonals});
  bordered.add_parts()->set_name("border");
  EXPECT_EQ(Toeplitz<float>::Of(Counting<float>(bordered)).status(),
            absl::InvalidArgumentError("tensor: got diagonals and border, want "
                                       "diagonals only (form TOEPLITZ)"));
  const auto odd = Header(Alibi(), v1::DATA_TYPE_F32, {2, kDiagonals + 1});
  EXPECT_EQ(Toeplitz<float>::Of(Counting<float>(odd)).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace attnbias::toeplitz_test
