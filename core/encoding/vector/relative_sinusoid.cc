// SPDX-License-Identifier: Apache-2.0
// Sinusoids of relative positions (Dai et al. 2019): each pair uses the row for its distance in a
// sinusoidal table.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "core/base/errors.h"
#include "core/encoding/encoding.h"
#include "core/encoding/sinusoid/sinusoid.h"
#include "core/encoding/sinusoid/sinusoidal_evaluator.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

// Returns the table whose rows the pairs use.
v1::Sinusoidal DistanceTableOf(const v1::RelativeSinusoidal& spec) {
  v1::Sinusoidal table;
  table.set_dim(spec.dim());
  *table.mutable_ladder() = spec.ladder();
  table.set_columns(spec.columns());
  table.set_odd(spec.odd());
  return table;
}

EvaluatorPtr PrepareDistances(EvaluatorPtr table, const SinusoidAxis& axis,
                              const v1::RelativeSinusoidal& spec, DataType type) {
  // The columns of the sines that rotate. The other sines are exact zeros, which have no sign.
  std::vector<int64_t> sines = axis.Rotating();
  for (int64_t& column : sines) {
    column = axis.columns.sin_offset + column * axis.columns.pair_stride;
  }
  return MakeEvaluator([table = std::move(table), spec, type, row_bytes = spec.dim() * SizeOf(type),
                        sines = std::move(sines)](const Block& block, std::byte* out,
                                                  int64_t /*lane_stride_bytes*/) {
    // Converts a row to the row for the opposite position: sines are odd, cosines even, and
    // rounding to nearest is symmetric.
    const auto reflect = [&](std::byte* row) {
      WithBitsOf(type, [&]<typename Bits>(Bits /*zero*/) {
        constexpr Bits kSign = std::bit_floor(static_cast<Bits>(-1));
        for (const int64_t column : sines) reinterpret_cast<Bits*>(row)[column] ^= kSign;
      });
    };
    const auto fill = [&](Range relative, std::byte* to) {
      if (relative.size() == 0) return;
      table->Fill({{0, 1}, relative}, to, 0);
      const bool key_minus_query = spec.sign() == v1::RELATIVE_SIGN_KEY_MINUS_QUERY;
      for (int64_t r = relative.begin; r < relative.end; ++r, to += row_bytes) {
        // Position 0 has exact zeros, which have no sign.
        if (spec.symmetric() ? r < 0 : (r != 0 && !key_minus_query)) reflect(to);
      }
    };
    const auto repeat = [&](int64_t relative, int64_t count, std::byte* to) {
      if (count == 0) return;
      fill({relative, relative + 1}, to);
      Repeat(to, row_bytes, count, to);
    };
    const Range span = block.span;
    // The outermost relative positions that have their own row.
    const int64_t left = -(spec.has_left() ? spec.left() : kMaxPosition);
    const int64_t right = spec.causal() ? 0 : spec.has_right() ? spec.right() : kMaxPosition;
    const Range own = {std::clamp(left, span.begin, span.end),
                       std::clamp(right + 1, span.begin, span.end)};
    const auto at = [&](int64_t relative) { return out + (relative - span.begin) * row_bytes; };
    repeat(left, own.begin - span.begin, out);
    fill(own, at(own.begin));
    if (spec.causal()) {
      std::memset(at(own.end), 0, (span.end - own.end) * row_bytes);
    } else {
      repeat(right, span.end - own.end, at(own.end));
    }
  });
}

absl::StatusOr<Encoding> DescribeRelativeSinusoidal(const v1::RelativeSinusoidal& spec,
                                                    const Tables& /*tables*/) {
  ATTNBIAS_ASSIGN_OR_RETURN(const std::vector<SinusoidAxis> axes,
                            AxesOf("relative_sinusoidal", DistanceTableOf(spec)));
  // A side that is neither clipped nor zero ends at the maximum position, any other side at the
  // maximum relative position.
  Range domain = kRelativePositions;
  if (!spec.has_left()) domain.begin = -kMaxPosition;
  if (!spec.has_right() && !spec.causal()) domain.end = kMaxPosition + 1;
  return Encoding{.structure = Structure::kToeplitz,
                  .width = spec.dim(),
                  .has_columns = true,
                  .domain = domain,
                  .evaluator_bytes = SinusoidsBytes(axes),
                  .prepare = [=](const NumberFormat& format, const KernelSet& kernels) {
                    return PrepareDistances(PrepareSinusoids(axes, format, kernels), axes.front(),
                                            spec, format.type);
                  }};
}

const EncodingRegistration kRelativeSinusoidal(v1::TensorSpec::kRelativeSinusoidalFieldNumber,
                                               &DescribeRelativeSinusoidal);

}  // namespace
}  // namespace attnbias
