// SPDX-License-Identifier: Apache-2.0
// Compares elements of every type with real numbers, each of which is computed only once.
#pragma once

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/encoding/mpfr_oracle.h"
#include "tests/unit/support/filled.h"

namespace attnbias {

// Returns the element nearest to a real number; 0 has no sign.
inline double RoundedReal(mpfr_ptr value, DataType type) {
  return mpfr_zero_p(value) != 0 ? 0 : RoundedBy(value, type);
}

// Compares the rows that `fill(type, out)` writes with the values that
// `set_exact(row, column, value)` sets, times the scale.
template <typename Fill, typename SetExact>
void ExpectRowsRounded(int64_t rows, int64_t columns, double scale, const Fill& fill,
                       const SetExact& set_exact, int precision = 600) {
  std::vector<std::vector<std::byte>> got;
  for (const DataType type : kFloatTypes) {
    got.emplace_back(rows * columns * SizeOf(type));
    fill(type, got.back().data());
  }
  Number exact(precision);
  for (int64_t at = 0; at < rows * columns; ++at) {
    set_exact(at / columns, at % columns, exact);
    mpfr_mul_d(exact, exact, scale, MPFR_RNDN);
    for (size_t i = 0; i < got.size(); ++i) {
      const DataType type = kFloatTypes[i];
      const double number = ElementAt(type, got[i].data(), at);
      const double want = RoundedReal(exact, type);
      ASSERT_TRUE(Same(number, want)) << NameOf(type) << " row " << at / columns << " column "
                                      << at % columns << ": got " << number << ", want " << want;
    }
  }
}

// Does the same for an encoding's lanes over `span`, calling `set_exact(lane, coordinate, value)`
// for all lanes of one coordinate before those of the next.
template <typename Encoding, typename SetExact>
void ExpectLanesRounded(const Encoding& spec, Range span, double scale, const SetExact& set_exact,
                        int64_t query = 0) {
  std::vector<FilledNumbers> got;
  for (const DataType type : kFloatTypes) {
    got.push_back(Filled(spec, span, type, Scaled(scale), query));
  }
  const int64_t lanes = std::ssize(got[0].numbers) / span.size();
  Number exact;
  for (int64_t at = span.begin; at < span.end; ++at) {
    for (int64_t lane = 0; lane < lanes; ++lane) {
      set_exact(lane, at, exact);
      mpfr_mul_d(exact, exact, scale, MPFR_RNDN);
      for (size_t i = 0; i < got.size(); ++i) {
        const double want = RoundedReal(exact, kFloatTypes[i]);
        ASSERT_TRUE(Same(got[i].At(lane, at), want))
            << NameOf(kFloatTypes[i]) << " lane " << lane << " at " << at << ": got "
            << got[i].At(lane, at) << ", want " << want;
      }
    }
  }
}

}  // namespace attnbias
