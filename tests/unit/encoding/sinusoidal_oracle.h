// SPDX-License-Identifier: Apache-2.0
// Sinusoidal positions computed directly from the formula.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "attnbias/v1/encodings.pb.h"
#include "tests/unit/encoding/expect_rounded.h"
#include "tests/unit/support/specs.h"

namespace attnbias {

// Column orders, with the frequencies that models use with them.
enum class SinusoidLayout { kInterleaved, kSinesCosines, kTensor2Tensor };

// A one-axis sinusoidal table.
struct SinusoidTable {
  int64_t dim = 0;
  double base = 10000;
  SinusoidLayout layout = SinusoidLayout::kInterleaved;
  double min_timescale = 1;
  double max_timescale = 10000;
};

inline v1::Sinusoidal MessageOf(const SinusoidTable& table) {
  v1::Sinusoidal message;
  message.set_dim(static_cast<int>(table.dim));
  v1::Ladder& ladder = *message.mutable_ladder();
  if (table.layout != SinusoidLayout::kInterleaved) {
    message.set_columns(v1::COLUMNS_SINES_COSINES);
  }
  if (table.layout == SinusoidLayout::kTensor2Tensor) {
    message.set_odd(v1::ODD_COLUMN_ZERO);
    ladder.mutable_timescales()->set_min(table.min_timescale);
    ladder.mutable_timescales()->set_max(table.max_timescale);
  } else {
    ladder.set_base(table.base);
  }
  return message;
}

// Sets `x` to (position + offset) scale / (length + eps).
inline void SetStretched(const v1::Axis& axis, double position, mpfr_ptr x) {
  Number length(static_cast<int>(mpfr_get_prec(x)));
  mpfr_set_d(x, axis.offset(), MPFR_RNDN);
  mpfr_add_d(x, x, position, MPFR_RNDN);
  mpfr_mul_d(x, x, axis.scale(), MPFR_RNDN);
  mpfr_set_d(length, axis.length(), MPFR_RNDN);
  mpfr_add_d(length, length, axis.eps(), MPFR_RNDN);
  mpfr_div(x, x, length, MPFR_RNDN);
}

// The largest angle is 2^100 radians, so 150 bits of the sine are correct even next to a multiple
// of pi.
inline constexpr int kOracleBits = 320;

// The formula, as a list of the waves that the message describes.
class SinusoidalOracle {
 public:
  explicit SinusoidalOracle(const v1::Sinusoidal& spec) : spec_(Completed(spec)) {
    if (spec_.axes().empty()) *spec_.add_axes() = Completed(v1::Axis());
    const int count = spec_.axes_size();
    std::vector<Wave> all_sines;
    std::vector<Wave> all_cosines;
    for (int axis = 0; axis < count; ++axis) {
      int64_t dim = spec_.axis_dims().empty() ? spec_.dim() / count : spec_.axis_dims(axis);
      if (spec_.odd() == v1::ODD_COLUMN_ZERO) dim = dim / 2 * 2;
      std::vector<Wave> sines;
      std::vector<Wave> cosines;
      for (int64_t k = 0; k < (dim + 1) / 2; ++k) {
        sines.push_back({true, axis, k});
      }
      for (int64_t k = 0; k < dim / 2; ++k) cosines.push_back({false, axis, k});
      if (spec_.across_axes()) {
        Append(sines, all_sines);
        Append(cosines, all_cosines);
      } else {
        AppendInOrder(sines, cosines);
      }
      columns_.push_back(dim);
      sines_.push_back(std::ssize(sines));
    }
    AppendInOrder(all_sines, all_cosines);
    for (const Wave& wave : waves_) {
      SetFrequency(wave, frequencies_.emplace_back(kOracleBits));
    }
  }

  int AxisOf(int64_t column) const { return column < std::ssize(waves_) ? waves_[column].axis : 0; }

  // Sets `x` to the element at (position, column).
  void Set(double position, int64_t column, mpfr_ptr x) {
    if (column >= std::ssize(waves_)) return mpfr_set_zero(x, 1);
    const Wave& wave = waves_[column];
    SetStretched(spec_.axes(wave.axis), position, x);
    mpfr_mul(x, x, frequencies_[column], MPFR_RNDN);
    wave.is_sine ? mpfr_sin(x, x, MPFR_RNDN) : mpfr_cos(x, x, MPFR_RNDN);
  }

  double Rounded(double position, int64_t column, DataType type, double scale = 1) {
    Number x(kOracleBits);
    Set(position, column, x);
    mpfr_mul_d(x, x, scale, MPFR_RNDN);
    return RoundedReal(x, type);
  }

  // Radians per position.
  mpfr_ptr Frequency(int64_t column) { return frequencies_[column]; }

 private:
  // A column: the sine or cosine of one axis at one frequency.
  struct Wave {
    bool is_sine;
    int axis;
    int64_t frequency;
  };

  static void Append(const std::vector<Wave>& from, std::vector<Wave>& to) {
    to.insert(to.end(), from.begin(), from.end());
  }

  void AppendInOrder(const std::vector<Wave>& sines, const std::vector<Wave>& cosines) {
    if (spec_.columns() == v1::COLUMNS_INTERLEAVED) {
      for (size_t k = 0; k < sines.size(); ++k) {
        waves_.push_back(sines[k]);
        if (k < cosines.size()) waves_.push_back(cosines[k]);
      }
    } else if (spec_.columns() == v1::COLUMNS_SINES_COSINES) {
      Append(sines, waves_);
      Append(cosines, waves_);
    } else {
      Append(cosines, waves_);
      Append(sines, waves_);
    }
  }

  void SetFrequency(const Wave& wave, mpfr_ptr value) const {
    const v1::Axis& own = spec_.axes(wave.axis);
    const v1::Ladder& ladder = own.has_ladder() ? own.ladder() : spec_.ladder();
    int64_t k = wave.frequency;
    int64_t columns = columns_[wave.axis];
    int64_t pairs = sines_[wave.axis];
    if (!own.has_ladder()) {
      columns = pairs = 0;
      for (int axis = 0; axis < spec_.axes_size(); ++axis) {
        if (spec_.axes(axis).has_ladder()) continue;
        if (axis < wave.axis) k += sines_[axis];
        columns += columns_[axis];
        pairs += sines_[axis];
      }
    }
    if (ladder.has_frequencies()) {
      mpfr_set_d(value, ladder.frequencies().values(static_cast<int>(k)), MPFR_RNDN);
      return;
    }
    const bool has_timescales = ladder.has_timescales();
    const double first = has_timescales ? ladder.timescales().min() : 1;
    mpfr_set_d(value, has_timescales ? ladder.timescales().max() : ladder.base(), MPFR_RNDN);
    mpfr_div_d(value, value, first, MPFR_RNDN);
    mpfr_log(value, value, MPFR_RNDN);
    mpfr_mul_si(value, value, has_timescales ? -k : -2 * k, MPFR_RNDN);
    mpfr_div_si(value, value, has_timescales ? std::max<int64_t>(pairs - 1, 1) : columns,
                MPFR_RNDN);
    mpfr_exp(value, value, MPFR_RNDN);
    mpfr_mul_d(value, value, first, MPFR_RNDN);
  }

  v1::Sinusoidal spec_;
  std::vector<Wave> waves_;
  // One for each wave.
  std::deque<Number> frequencies_;
  // Each has one element per axis.
  std::vector<int64_t> columns_;
  std::vector<int64_t> sines_;
};

}  // namespace attnbias
