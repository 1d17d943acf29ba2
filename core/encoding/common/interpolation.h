// SPDX-License-Identifier: Apache-2.0
// Linear interpolation between rows of a table, over the rational numbers.
#ifndef ATTNBIAS_CORE_ENCODING_COMMON_INTERPOLATION_H_
#define ATTNBIAS_CORE_ENCODING_COMMON_INTERPOLATION_H_

#include <cstddef>
#include <cstdint>

#include "core/encoding/common/scaled_rounding.h"
#include "core/encoding/spec/learned_absolute.h"
#include "core/tensor/data_type.h"

namespace attnbias {

// Between rows `row` and `row` + 1 of a table, at upper / denominator of the
// way; at a row itself, upper is 0. In lowest terms.
struct RowPlace {
  int64_t row = 0;
  int64_t upper = 0;
  int64_t denominator = 1;
};

// Where row `row` of `to` rows reads a table of `from` rows; `to` is at most
// 2^20, `from` at most 2^40.
RowPlace PlaceOf(Interpolation interpolation, int64_t row, int64_t from,
                 int64_t to);

// Writes numbers between those of two rows, times a scale.
class Interpolator {
 public:
  Interpolator(double scale, DataType type)
      : scale_(scale), type_(type), rounding_(scale, type) {}

  // Writes scale ((denominator - upper) a + upper b) / denominator, rounded
  // once. `upper` is not 0; a and b are finite.
  void Write(const RowPlace& place, double a, double b, std::byte* out) const;

 private:
  bool TryInDoubleDoubles(const RowPlace& place, double a, double b,
                          std::byte* out) const;
  void WriteExactly(const RowPlace& place, double a, double b,
                    std::byte* out) const;

  const double scale_;
  const DataType type_;
  const ScaledRounding rounding_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_COMMON_INTERPOLATION_H_
