// SPDX-License-Identifier: Apache-2.0
// Sinusoids of relative positions: at every pair the row that a sinusoidal
// table has for its distance i - j, query minus key. Transformer-XL, XLNet,
// Conformer and the symmetric form.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

#include "core/base/invalid.h"
#include "core/encoding/common/limits.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/sinusoid/sinusoid.h"
#include "core/encoding/sinusoid/sinusoidal_evaluator.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

// Which row stands for a distance.
struct DistanceRule {
  // Whether distances lose their sign.
  bool symmetric = false;
  // Whether keys to the right of the query have a zero vector, and no row.
  bool zero_right = false;
  // The largest magnitude, as which all beyond it count.
  std::optional<int64_t> clamp_len;
};

// Negates the sines of one row of `Bits`, by which it becomes the row of the
// opposite position: sines are odd, cosines even, and rounding to nearest knows
// no sign.
template <typename Bits>
void NegateSines(const SinusoidColumns& columns, std::byte* row) {
  constexpr Bits kSign = std::bit_floor(static_cast<Bits>(-1));
  auto* elements = reinterpret_cast<Bits*>(row);
  for (int64_t i = 0; i < columns.sines; ++i) {
    elements[i * columns.pair_stride] ^= kSign;
  }
}

class RelativeSinusoidEvaluator final : public Evaluator {
 public:
  RelativeSinusoidEvaluator(EvaluatorPtr rows, const SinusoidTable& table,
                            const DistanceRule& rule, DataType type)
      : rows_(std::move(rows)),
        columns_(table),
        rule_(rule),
        element_bytes_(SizeOf(type)),
        row_bytes_(table.dim * element_bytes_) {}

  void Fill(const Block& block, std::byte* out,
            int64_t /*lane_stride_bytes*/) const override {
    const Range span = block.span;
    const int64_t reach = rule_.clamp_len.value_or(kMaxPosition);
    const int64_t right = rule_.zero_right ? 0 : reach;
    const auto clamped = [&](int64_t relative) {
      return std::clamp(relative, span.begin, span.end);
    };
    const Range left = {span.begin, clamped(-reach)};
    const Range middle = {left.end, clamped(right + 1)};
    const auto at = [&](int64_t relative) {
      return out + (relative - span.begin) * row_bytes_;
    };
    if (left.size() > 0) Repeat(-reach, left.size(), at(left.begin));
    if (middle.size() > 0) FillRows(middle, at(middle.begin));
    const int64_t beyond = span.end - middle.end;
    if (beyond == 0) return;
    if (rule_.zero_right) {
      std::memset(at(middle.end), 0, beyond * row_bytes_);
    } else {
      Repeat(reach, beyond, at(middle.end));
    }
  }

 private:
  // The table's row r is that of distance r; relative position r is distance
  // -r.
  void FillRows(Range relative, std::byte* out) const {
    rows_->Fill({{0, 1}, relative}, out, 0);
    for (int64_t r = relative.begin; r < relative.end; ++r) {
      // Position 0 has exact zeros, which have no sign.
      if (r < 0 || (r > 0 && !rule_.symmetric)) Reflect(out);
      out += row_bytes_;
    }
  }

  void Reflect(std::byte* row) const {
    switch (element_bytes_) {
      case 2:
        return NegateSines<uint16_t>(columns_, row);
      case 4:
        return NegateSines<uint32_t>(columns_, row);
      default:
        return NegateSines<uint64_t>(columns_, row);
    }
  }

  void Repeat(int64_t relative, int64_t count, std::byte* out) const {
    FillRows({relative, relative + 1}, out);
    for (int64_t row = 1; row < count; ++row) {
      std::memcpy(out + row * row_bytes_, out, row_bytes_);
    }
  }

  const EvaluatorPtr rows_;
  const SinusoidColumns columns_;
  const DistanceRule rule_;
  const int64_t element_bytes_;
  const int64_t row_bytes_;
};

Encoding RelativeSinusoid(const SinusoidTable& table,
                          const DistanceRule& rule) {
  // Sinusoids reach as far as positions do.
  Range domain = {-kMaxPosition,
                  rule.zero_right ? kRelativePositions.end : kMaxPosition + 1};
  if (rule.clamp_len.has_value()) domain = kRelativePositions;
  return Encoding{.structure = Structure::kToeplitz,
                  .width = table.dim,
                  .has_columns = true,
                  .domain = domain,
                  .evaluator_bytes = SinusoidsBytes(SinusoidColumns(table)),
                  .prepare = [table, rule](const NumberFormat& format,
                                           const KernelSet& kernels) {
                    return std::make_unique<RelativeSinusoidEvaluator>(
                        PrepareSinusoids(table, format, kernels), table, rule,
                        format.type);
                  }};
}

template <typename Message>
std::optional<int64_t> ClampOf(const Message& spec) {
  if (!spec.has_clamp_len()) return std::nullopt;
  return spec.clamp_len();
}

// Transformer-XL's R (Dai et al. 2019): the distance back from query to key.
absl::StatusOr<Encoding> DescribeTransformerXl(const v1::TransformerXl& spec,
                                               const Tables& /*tables*/) {
  return RelativeSinusoid({.dim = spec.dim(),
                           .base = spec.base(),
                           .layout = v1::SINUSOIDAL_LAYOUT_CONCATENATED},
                          {.zero_right = true, .clamp_len = ClampOf(spec)});
}

const EncodingRegistration kTransformerXl(
    v1::TensorSpec::kTransformerXlFieldNumber, &DescribeTransformerXl);

// XLNet (Yang et al. 2019): the signed distance.
absl::StatusOr<Encoding> DescribeXlnet(const v1::Xlnet& spec,
                                       const Tables& /*tables*/) {
  return RelativeSinusoid(
      {.dim = spec.dim(),
       .base = spec.base(),
       .layout = v1::SINUSOIDAL_LAYOUT_CONCATENATED},
      {.zero_right = spec.attn_type() == v1::XLNET_ATTENTION_UNIDIRECTIONAL,
       .clamp_len = ClampOf(spec)});
}

const EncodingRegistration kXlnet(v1::TensorSpec::kXlnetFieldNumber,
                                  &DescribeXlnet);

// Conformer, as ESPnet and wav2vec 2.0 have it: the signed distance,
// interleaved.
absl::StatusOr<Encoding> DescribeConformer(const v1::Conformer& spec,
                                           const Tables& /*tables*/) {
  return RelativeSinusoid({.dim = spec.dim(),
                           .base = spec.base(),
                           .layout = v1::SINUSOIDAL_LAYOUT_INTERLEAVED},
                          DistanceRule());
}

const EncodingRegistration kConformer(v1::TensorSpec::kConformerFieldNumber,
                                      &DescribeConformer);

// Blind to direction.
absl::StatusOr<Encoding> DescribeSymmetricSinusoidal(
    const v1::SymmetricSinusoidal& spec, const Tables& /*tables*/) {
  if (spec.layout() == v1::SINUSOIDAL_LAYOUT_TENSOR2TENSOR) {
    return Invalid(
        "symmetric_sinusoidal.layout: got TENSOR2TENSOR, want INTERLEAVED or "
        "CONCATENATED");
  }
  return RelativeSinusoid(
      {.dim = spec.dim(), .base = spec.base(), .layout = spec.layout()},
      {.symmetric = true});
}

const EncodingRegistration kSymmetricSinusoidal(
    v1::TensorSpec::kSymmetricSinusoidalFieldNumber,
    &DescribeSymmetricSinusoidal);

}  // namespace
}  // namespace attnbias
