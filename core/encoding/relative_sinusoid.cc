// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/relative_sinusoid.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

#include "core/base/status_macros.h"
#include "core/encoding/checks.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/sinusoidal.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

constexpr int64_t kMaxDim = 65536;
constexpr double kMaxBase = 1e18;

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
  RelativeSinusoidEvaluator(std::unique_ptr<const Evaluator> rows,
                            const SinusoidalSpec& table,
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

  int64_t memory_bytes() const override { return rows_->memory_bytes(); }

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

  const std::unique_ptr<const Evaluator> rows_;
  const SinusoidColumns columns_;
  const DistanceRule rule_;
  const int64_t element_bytes_;
  const int64_t row_bytes_;
};

}  // namespace

RelativeSinusoid::RelativeSinusoid(const SinusoidalSpec& table,
                                   const DistanceRule& rule,
                                   const Output& output)
    : table_(table), rule_(rule), output_(output) {}

// Sinusoids reach as far as positions do.
Range RelativeSinusoid::domain() const {
  if (rule_.clamp_len.has_value()) return kRelativePositions;
  return {-kMaxPosition,
          rule_.zero_right ? kRelativePositions.end : kMaxPosition + 1};
}

std::unique_ptr<const Evaluator> RelativeSinusoid::Prepare(
    DataType type, const KernelSet& kernels) const {
  const EncodingPtr rows = *MakeEncoding(table_, output_);
  return std::make_unique<RelativeSinusoidEvaluator>(
      rows->Prepare(type, kernels), table_, rule_, type);
}

void RelativeSinusoid::WriteTable(CanonicalWriter& writer) const {
  writer.Integer(1, table_.dim);
  writer.Real(2, table_.base, SinusoidalSpec().base);
}

void RelativeSinusoid::WriteScale(CanonicalWriter& writer) const {
  writer.Real(101, output_.scale, 1);
}

absl::Status CheckRelativeSinusoid(absl::string_view name,
                                   const SinusoidalSpec& table,
                                   const Output& output) {
  if (table.dim < 2 || table.dim > kMaxDim || table.dim % 2 != 0) {
    return Invalid(name, ".dim: got ", table.dim,
                   ", want an even integer in [2, ", kMaxDim, "]");
  }
  if (!(table.base >= 1 && table.base <= kMaxBase)) {
    return Invalid(name, ".base: got ", table.base, ", want a number in [1, ",
                   kMaxBase, "]");
  }
  ATTNBIAS_RETURN_IF_ERROR(CheckBias(output, name));
  return CheckScale(output);
}

absl::Status CheckClampLen(absl::string_view name,
                           const std::optional<int64_t>& clamp_len) {
  if (!clamp_len.has_value() || (*clamp_len >= 1 && *clamp_len <= kMaxPosition))
    return absl::OkStatus();
  return Invalid(name, ".clamp_len: got ", *clamp_len,
                 ", want an integer in [1, 2^40], or none");
}

}  // namespace attnbias
