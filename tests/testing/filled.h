// SPDX-License-Identifier: Apache-2.0
// An encoding's numbers, straight from its evaluator.
#ifndef ATTNBIAS_TESTS_TESTING_FILLED_H_
#define ATTNBIAS_TESTS_TESTING_FILLED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/encoding/make_encoding.h"
#include "core/kernel/kernel_set.h"
#include "core/tensor/element.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace attnbias {

inline Output Scaled(double scale) {
  Output output;
  output.scale = scale;
  return output;
}

inline Output WithValues(Values values) {
  Output output;
  output.values = values;
  return output;
}

struct FilledNumbers {
  Range span;
  std::vector<double> numbers;  // [lanes, span]

  double At(int64_t lane, int64_t coordinate) const {
    return numbers[lane * span.size() + coordinate - span.begin];
  }
};

// All lanes over `span`, which is cut into pieces of at most `most`.
template <typename Spec>
FilledNumbers Filled(
    const Spec& spec, Range span, DataType type, const Output& output = {},
    int64_t query = 0, int64_t most = 1000,
    const KernelSet& kernels = *SupportedKernelSets().front()) {
  const auto encoding = MakeEncoding(spec, output);
  EXPECT_THAT(encoding, IsOk());
  const auto evaluator = (*encoding)->prepare({type, output.scale}, kernels);
  const int64_t width = SizeOf(type);
  const int64_t stride = span.size() * width;
  std::vector<std::byte> bytes((*encoding)->lanes * stride);
  for (int64_t at = span.begin; at < span.end; at += most) {
    evaluator->Fill(
        {{0, (*encoding)->lanes}, {at, std::min(at + most, span.end)}, query},
        &bytes[(at - span.begin) * width], stride);
  }
  FilledNumbers filled{span, {}};
  for (size_t i = 0; i < bytes.size(); i += width) {
    filled.numbers.push_back(ReadElement(type, &bytes[i]));
  }
  return filled;
}

// What makes the numbers, as bytes.
template <typename Spec>
std::string IdentityOf(const Spec& spec, const Output& output = {}) {
  const auto encoding = MakeEncoding(spec, output);
  EXPECT_THAT(encoding, IsOk());
  return (*encoding)->identity;
}

inline void ExpectAllDifferent(const std::vector<std::string>& identities) {
  for (size_t i = 0; i < identities.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_NE(identities[i], identities[j]) << i << " and " << j;
    }
  }
}

}  // namespace attnbias

#endif  // ATTNBIAS_TESTS_TESTING_FILLED_H_
