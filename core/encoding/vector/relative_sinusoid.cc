// SPDX-License-Identifier: Apache-2.0
// Sinusoids of relative positions (Dai et al. 2019): every pair has the row of a sinusoidal table
// for its distance.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
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
        type_(type),
        row_bytes_(spec.dim() * SizeOf(type)),
        sines_(axis.Rotating()) {
    for (int64_t& column : sines_) {
      column = axis.columns.sin_offset + column * axis.columns.pair_stride;
    }
  }

  void Fill(const Block& block, std::byte* out, int64_t /*lane_stride_bytes*/) const override {
    const Range span = block.span;
    // The outermost relative positions with their own row.
    const int64_t left = -(spec_.has_left() ? spec_.left() : kMaxPosition);
    const int64_t right = spec_.causal() ? 0 : spec_.has_right() ? spec_.right() : kMaxPosition;
    const Range own = {std::clamp(left, span.begin, span.end),
                       std::clamp(right + 1, span.begin, span.end)};
    const auto at = [&](int64_t relative) { return out + (relative - span.begin) * row_bytes_; };
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
    const bool key_minus_query = spec_.sign() == v1::RELATIVE_SIGN_KEY_MINUS_QUERY;
    for (int64_t r = relative.begin; r < relative.end; ++r) {
      // Position 0 has exact zeros, which have no sign.
      const bool reflected = spec_.symmetric() ? r < 0 : (r != 0 && !key_minus_query);
      if (reflected) Reflect(out);
      out += row_bytes_;
    }
  }

  // Changes a row to that of the opposite position: sines are odd, cosines even, and rounding is
  // symmetric.
  void Reflect(std::byte* row) const {
    WithBitsOf(type_, [&]<typename Bits>(Bits /*zero*/) {
      constexpr Bits kSign = std::bit_floor(static_cast<Bits>(-1));
      for (const int64_t column : sines_) reinterpret_cast<Bits*>(row)[column] ^= kSign;
    });
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
  const DataType type_;
  const int64_t row_bytes_;
  // The columns of sines that rotate. The other sines are exact zeros, without a sign.
  std::vector<int64_t> sines_;
};

absl::StatusOr<Encoding> DescribeRelativeSinusoidal(const v1::RelativeSinusoidal& spec,
                                                    const Tables& /*tables*/) {
  ATTNBIAS_ASSIGN_OR_RETURN(const std::vector<SinusoidAxis> axes,
                            AxesOf("relative_sinusoidal", DistanceTableOf(spec)));
  // A sinusoid ends where positions do; a side that is clipped, where relative positions do.
  Range domain = kRelativePositions;
  if (!spec.has_left()) domain.begin = -kMaxPosition;
  if (!spec.has_right() && !spec.causal()) domain.end = kMaxPosition + 1;
  return Encoding{.structure = Structure::kToeplitz,
                  .width = spec.dim(),
                  .has_columns = true,
                  .domain = domain,
                  .evaluator_bytes = SinusoidsBytes(axes),
                  .prepare = [=](const NumberFormat& format, const KernelSet& kernels) {
                    return std::make_unique<RelativeSinusoidEvaluator>(
                        PrepareSinusoids(axes, format, kernels), axes.front(), spec, format.type);
                  }};
}

const EncodingRegistration kRelativeSinusoidal(v1::TensorSpec::kRelativeSinusoidalFieldNumber,
                                               &DescribeRelativeSinusoidal);

}  // namespace
}  // namespace attnbias
