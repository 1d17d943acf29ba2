// SPDX-License-Identifier: Apache-2.0
// An encoding's values, directly from its evaluator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/encoding/encoding.h"
#include "core/kernel/kernel_set.h"
#include "core/tensor/data_type.h"
#include "gtest/gtest.h"
#include "tests/unit/support/specs.h"
#include "tests/unit/support/status_matchers.h"

namespace attnbias {

struct FilledNumbers {
  Range span;
  std::vector<double> numbers;  // [lanes, span], or [lanes, span, width]

  double At(int64_t lane, int64_t coordinate) const {
    return numbers[lane * span.size() + coordinate - span.begin];
  }
};

// Makes an encoding from a message or from a whole spec, with `output` in text format.
template <typename Encoding>
EncodingPtr MakeWith(const Encoding& encoding, const std::string& output = "") {
  v1::TensorSpec spec = WithOutput(encoding, output);
  const auto made = MakeEncoding(TestTables(), spec);
  EXPECT_THAT(made, IsOk());
  return *made;
}

// Returns the error from making an encoding.
template <typename Encoding>
absl::Status RefusalOf(const Encoding& encoding, const std::string& output = "") {
  v1::TensorSpec spec = WithOutput(encoding, output);
  return MakeEncoding(TestTables(), spec).status();
}

// Returns all lanes over `span`, which is split into pieces of at most `most` coordinates.
template <typename Encoding>
FilledNumbers Filled(const Encoding& encoding, Range span, DataType type,
                     const std::string& output = "", int64_t query = 0, int64_t most = 1000,
                     const KernelSet& kernels = *SupportedKernelSets().front()) {
  const EncodingPtr made = MakeWith(encoding, output);
  const double scale = WithOutput(encoding, output).output().scale();
  const auto evaluator = made->prepare({type, scale == 0 ? 1 : scale}, kernels);
  const int64_t width = made->width * SizeOf(type);
  const int64_t stride = span.size() * width;
  std::vector<std::byte> bytes(made->lanes * stride);
  for (int64_t at = span.begin; at < span.end; at += most) {
    evaluator->Fill({{0, made->lanes}, {at, std::min(at + most, span.end)}, query},
                    &bytes[(at - span.begin) * width], stride);
  }
  FilledNumbers filled{span, {}};
  for (size_t i = 0; i < bytes.size(); i += SizeOf(type)) {
    filled.numbers.push_back(ReadElement(type, &bytes[i]));
  }
  return filled;
}

// Returns an encoding's identity; equal identities mean equal values.
template <typename Encoding>
std::string IdentityOf(const Encoding& encoding, const std::string& output = "") {
  return MakeWith(encoding, output)->identity;
}

inline void ExpectAllDifferent(const std::vector<std::string>& identities) {
  for (size_t i = 0; i < identities.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_NE(identities[i], identities[j]) << i << " and " << j;
    }
  }
}

}  // namespace attnbias
