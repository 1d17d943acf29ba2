// SPDX-License-Identifier: Apache-2.0
// Rows of sines and cosines: their columns, frequencies and scale, and the definition of every
// element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attnbias/v1/encodings.pb.h"
#include "core/base/executor.h"
#include "core/encoding/encoding.h"
#include "core/kernel/kernel_set.h"
#include "core/numerics/real.h"
#include "core/numerics/revolutions.h"
#include "core/tensor/data_type.h"

namespace attnbias {

// The columns of one axis in a row. Frequency i has its sine at column
// sin_offset + i * pair_stride, for i < sines, and its cosine at
// cos_offset + i * pair_stride, for i < cosines. Other columns are zero.
//
//   dim = 5   INTERLEAVED    s0 c0 s1 c1 s2   ZERO  s0 c0 s1 c1 0
//             SINES_COSINES  s0 s1 s2 c0 c1         s0 s1 c0 c1 0
//             COSINES_SINES  c0 c1 s0 s1 s2         c0 c1 s0 s1 0
struct SinusoidColumns {
  enum class Kind : uint8_t { kSine, kCosine };
  // The element at a column.
  struct Wave {
    int64_t frequency;
    Kind kind;
  };

  // Sets the columns for an axis that fills its row.
  SinusoidColumns(int64_t dim, v1::Columns order);
  // `column` must hold a frequency's sine or cosine.
  Wave WaveAt(int64_t column) const;

  // Number of columns in the row.
  int64_t width;
  int64_t sines;
  int64_t cosines;
  int64_t pair_stride;
  int64_t sin_offset;
  int64_t cos_offset;
};

// Frequencies per unit of x. Frequency k is given[k], or first (ratio_over / ratio_under)^(-k
// numerator / denominator) if `given` is null.
struct SinusoidLadder {
  double first = 1;
  double ratio_over = 1;
  double ratio_under = 1;
  int64_t numerator = 1;
  int64_t denominator = 1;
  std::shared_ptr<const std::vector<double>> given = nullptr;

  friend bool operator==(const SinusoidLadder&, const SinusoidLadder&) = default;
};

// Returns ratio^(-steps numerator / denominator). At precision p, rounding the exponent costs
// |ln(power)| 2^-p < 56 x 2^-p; rounding the ratio and the power costs 2^-p each.
Real PowerOf(const SinusoidLadder& ladder, int64_t steps, int precision);

// Maps positions to x = (p + offset) scale / (length + eps).
struct AxisStretch {
  double scale = 1;
  double offset = 0;
  double length = 1;
  double eps = 0;

  friend bool operator==(const AxisStretch&, const AxisStretch&) = default;
};

// Returns scale / (length + eps), with two roundings.
Real StretchFactor(const AxisStretch& stretch, int precision);

// Sinusoids along one position axis.
struct SinusoidAxis {
  SinusoidColumns columns;
  SinusoidLadder ladder;
  // Index of this axis's first frequency in the ladder.
  int64_t first_frequency = 0;
  AxisStretch stretch = {};

  // Returns the indices of the frequencies that are not 0.
  std::vector<int64_t> Rotating() const;
};

// Returns an axis with `dim` columns and frequencies base^(-2k / dim).
SinusoidAxis AxisOfBase(double base, int64_t dim, v1::Columns order);

// Returns the axes of a complete message. INVALID_ARGUMENT errors name a field of `encoding`.
absl::StatusOr<std::vector<SinusoidAxis>> AxesOf(absl::string_view encoding,
                                                 const v1::Sinusoidal& spec);

std::vector<double> OffsetsOf(const std::vector<SinusoidAxis>& axes);

// Returns an Encoding's axis_columns, given each column's axis. Columns without an axis, which are
// zero, belong to the axis of the preceding columns.
inline constexpr int64_t kNoAxis = -1;
std::vector<AxisColumns> RunsOf(absl::Span<const int64_t> axis_of_column);

struct SinusoidFrequency {
  FloatingRevolutions revolutions_per_position;
  double radians_per_position;  // magnitude, as the nearest double
};

// Precision of frequencies and scales; all bits except the last few are correct.
inline constexpr int kSinusoidPrecision = 384;

// Returns the frequency at kSinusoidPrecision. The magnitude of `radians_per_position` must be in
// [2^-400, 2^104].
SinusoidFrequency FrequencyOf(const Real& radians_per_position);

// Returns the angle at position + rest, which must not both be 0; `rest` must be in [-1/2, 1/2].
ReducedAngle AngleAt(const SinusoidFrequency& frequency, int64_t position, double rest);

// Describes rows to their evaluator.
struct SinusoidRows {
  SinusoidColumns columns;
  std::vector<SinusoidFrequency> frequencies;
  // Nonzero factor, at kSinusoidPrecision, by which every element is multiplied.
  Real scale;
  // Writes the element at a position and column as `type`, computed from its definition, which is
  // slow. Positions are integers unless `rest` is 0.
  std::function<void(BinaryPosition position, int64_t column, DataType type, std::byte* out)>
      reference;
  // Offset added to positions, as an integer and a remainder.
  int64_t whole = 0;
  double rest = 0;
};

// Returns a nonzero real number to within a relative error of 2^(6 - precision_bits).
using RealToAnyPrecision = std::function<Real(int precision_bits)>;
// The same, for each frequency in a row.
using RealsToAnyPrecision = std::function<Real(int64_t index, int precision_bits)>;

// Returns the rows for nonzero frequencies, at positions plus `offset`. `frequencies` computes the
// frequencies to any precision; `at` returns them at kSinusoidPrecision and is called with
// ascending indices.
SinusoidRows RowsOf(const SinusoidColumns& columns, double offset,
                    absl::FunctionRef<const Real&(int64_t index)> at,
                    RealsToAnyPrecision frequencies, RealToAnyPrecision scale);

// Returns the rows for an axis's rotating frequencies, placed at `columns`. For a geometric
// progression, computes one power and then one product per frequency, to within a relative error of
// 2^-360.
SinusoidRows RowsOf(const SinusoidAxis& axis, const SinusoidColumns& columns, double scale);

// Writes the sine or cosine of a nonzero angle, times the scale, as `type`; this defines every such
// element.
void RoundSinusoid(SinusoidColumns::Kind kind, absl::FunctionRef<Real(int precision_bits)> angle_to,
                   absl::FunctionRef<Real(int precision_bits)> scale_to, DataType type,
                   std::byte* out);

// Aligns a vector's elements to a cache line.
template <typename T>
struct CacheLineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kAlignment{64};

  CacheLineAllocator() = default;
  template <typename U>
  explicit CacheLineAllocator(const CacheLineAllocator<U>&) {}

  T* allocate(size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), kAlignment));
  }
  void deallocate(T* data, size_t) { ::operator delete(data, kAlignment); }
  friend bool operator==(CacheLineAllocator, CacheLineAllocator) = default;
};

using AlignedDoubles = std::vector<double, CacheLineAllocator<double>>;

// Returns the number of pairs in a row with this many frequencies, including padding.
constexpr int64_t PaddedPairs(int64_t frequencies) {
  return (frequencies + kPairMultiple - 1) / kPairMultiple * kPairMultiple;
}

// Owns rows of rotors: for each row, the sine and cosine of one angle per column pair, in the
// layout that kernels read.
class RotorRows {
 public:
  // `pairs` must be a multiple of kPairMultiple.
  RotorRows(int64_t rows, int64_t pairs)
      : pairs_(pairs), size_(rows * pairs), numbers_(4 * size_) {}

  int64_t pairs() const { return pairs_; }

  Rotors Row(int64_t row) {
    double* const at = numbers_.data() + row * pairs_;
    return {at, at + size_, at + 2 * size_, at + 3 * size_};
  }
  ConstRotors Row(int64_t row) const {
    const double* const at = numbers_.data() + row * pairs_;
    return {at, at + size_, at + 2 * size_, at + 3 * size_};
  }

 private:
  int64_t pairs_;
  int64_t size_;
  // Upper halves of the sines, their lower halves, then the same for the cosines: [rows, pairs]
  // each.
  AlignedDoubles numbers_;
};

// Sets the angles at position + rest, each computed independently. Pairs beyond the frequencies are
// padding and do not rotate.
inline void SetAngles(const std::vector<SinusoidFrequency>& frequencies, int64_t position,
                      int64_t pairs, const Rotors& out, double rest = 0) {
  const auto used = static_cast<int64_t>(frequencies.size());
  for (int64_t i = 0; i < pairs; ++i) {
    if (!ComputeScope::Continues()) return;
    SinCos value = {{0, 0}, {1, 0}, 0};
    if (i < used && (position != 0 || rest != 0)) {
      value = SinCosOf(AngleAt(frequencies[i], position, rest));
    }
    out.sin_hi[i] = value.sin.hi;
    out.sin_lo[i] = value.sin.lo;
    out.cos_hi[i] = value.cos.hi;
    out.cos_lo[i] = value.cos.lo;
  }
}

}  // namespace attnbias
