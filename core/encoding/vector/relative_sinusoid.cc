// SPDX-License-Identifier: Apache-2.0
// Sinusoids of relative positions (Dai et al. 2019): at every pair the row that
// a sinusoidal table has for its distance.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "core/base/errors.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/sinusoid/sinusoid.h"
#include "core/encoding/sinusoid/sinusoidal_evaluator.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

// Returns the largest i - j that has a row of its own.
int64_t LeftOf(const v1::RelativeSinusoidal& spec) {
  return spec.has_left() ? spec.left() : kMaxPosition;
}

// Returns the largest j - i that has a row.
int64_t RightOf(const v1::RelativeSinusoidal& spec) {
  if (spec.causal()) return 0;
  return spec.has_right() ? spec.right() : kMaxPosition;
}

// Negates the sines of one row of `Bits`, by which it becomes the row of the
// opposite position: sines are odd, cosines even, and rounding to nearest knows
// no sign.
template <typename Bits>
void NegateSines(const std::vector<int64_t>& sines, std::byte* row) {
  constexpr Bits kSign = std::bit_floor(static_cast<Bits>(-1));
  for (const int64_t column : sines) {
    reinterpret_cast<Bits*>(row)[column] ^= kSign;
  }
}

// Returns the table whose rows the pairs have.
v1::Sinusoidal DistanceTableOf(const v1::RelativeSinusoidal& spec) {
  v1::Sinusoidal table;
  table.set_dim(spec.dim());
  *table.mutable_ladder() = spec.ladder();
  table.set_columns(spec.columns());
  table.set_odd(spec.odd());
  return table;
}

class RelativeSinusoidEvaluator final : public Evaluator {
 public:
  RelativeSinusoidEvaluator(EvaluatorPtr rows, const SinusoidAxis& axis,
                            const v1::RelativeSinusoidal& spec, DataType type)
      : rows_(std::move(rows)),
        spec_(spec),
        element_bytes_(SizeOf(type)),
        row_bytes_(spec.dim() * element_bytes_),
        sines_(axis.Turning()) {
    for (int64_t& column : sines_) {
      column = axis.columns.sin_offset + column * axis.columns.pair_stride;
    }
  }

  void Fill(const Block& block, std::byte* out,
            int64_t /*lane_stride_bytes*/) const override {
    const Range span = block.span;
    const int64_t left = -LeftOf(spec_);
    const int64_t right = RightOf(spec_);
    const Range own = {std::clamp(left, span.begin, span.end),
                       std::clamp(right + 1, span.begin, span.end)};
    const auto at = [&](int64_t relative) {
      return out + (relative - span.begin) * row_bytes_;
    };
    Repeat(left, own.begin - span.begin, out);
    FillRows(own, at(own.begin));
    if (spec_.causal()) {
      std::memset(at(own.end), 0, (span.end - own.end) * row_bytes_);
    } else {
      Repeat(right, span.end - own.end, at(own.end));
    }
  }

 private:
  void FillRows(Range relative, std::byte* out) const {
    if (relative.size() == 0) return;
    rows_->Fill({{0, 1}, relative}, out, 0);
    const bool key_minus_query =
        spec_.sign() == v1::RELATIVE_SIGN_KEY_MINUS_QUERY;
    for (int64_t r = relative.begin; r < relative.end; ++r) {
      // Position 0 has exact zeros, which have no sign.
      const bool reflected =
          spec_.symmetric() ? r < 0 : (r != 0 && !key_minus_query);
      if (reflected) Reflect(out);
      out += row_bytes_;
    }
  }

  void Reflect(std::byte* row) const {
    switch (element_bytes_) {
      case 2:
        return NegateSines<uint16_t>(sines_, row);
      case 4:
        return NegateSines<uint32_t>(sines_, row);
      default:
        return NegateSines<uint64_t>(sines_, row);
    }
  }

  void Repeat(int64_t relative, int64_t count, std::byte* out) const {
    if (count == 0) return;
    FillRows({relative, relative + 1}, out);
    for (int64_t row = 1; row < count; ++row) {
      std::memcpy(out + row * row_bytes_, out, row_bytes_);
    }
  }

  const EvaluatorPtr rows_;
  const v1::RelativeSinusoidal spec_;
  const int64_t element_bytes_;
  const int64_t row_bytes_;
  // The columns of sines that turn. The others are exact zeros, without a sign.
  std::vector<int64_t> sines_;
};

absl::StatusOr<Encoding> DescribeRelativeSinusoidal(
    const v1::RelativeSinusoidal& spec, const Tables& /*tables*/) {
  ATTNBIAS_ASSIGN_OR_RETURN(
      const std::vector<SinusoidAxis> axes,
      AxesOf("relative_sinusoidal", DistanceTableOf(spec)));
  // A sinusoid reaches as far as positions do; a side that ends, as far as
  // relative positions do.
  Range domain = kRelativePositions;
  if (!spec.has_left()) domain.begin = -kMaxPosition;
  if (!spec.has_right() && !spec.causal()) domain.end = kMaxPosition + 1;
  return Encoding{
      .structure = Structure::kToeplitz,
      .width = spec.dim(),
      .has_columns = true,
      .domain = domain,
      .evaluator_bytes = SinusoidsBytes(axes),
      .prepare = [=](const NumberFormat& format, const KernelSet& kernels) {
        return std::make_unique<RelativeSinusoidEvaluator>(
            PrepareSinusoids(axes, format, kernels), axes.front(), spec,
            format.type);
      }};
}

const EncodingRegistration kRelativeSinusoidal(
    v1::TensorSpec::kRelativeSinusoidalFieldNumber,
    &DescribeRelativeSinusoidal);

}  // namespace
}  // namespace attnbias
