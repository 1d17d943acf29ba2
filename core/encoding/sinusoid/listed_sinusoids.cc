// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/sinusoid/listed_sinusoids.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/encoding/common/scaled_rounding.h"
#include "core/numerics/turn.h"

namespace attnbias {
namespace {

class ListedSinusoids final : public Evaluator {
 public:
  ListedSinusoids(SinusoidRows rows, ListedAxis axis, DataType type)
      : rows_(std::move(rows)),
        axis_(std::move(axis)),
        rounding_(rows_.scale, type),
        type_(type) {
    RoundReal(rows_.scale, type, scale_);
  }

  void Fill(const Block& block, std::byte* out,
            int64_t /*lane_stride_bytes*/) const override {
    const std::vector<double>& positions = (*axis_.positions)[axis_.axis];
    for (int64_t at = block.span.begin; at < block.span.end; ++at) {
      const auto position = BinarySum(positions[at], axis_.offset);
      FillRow(position.value_or(BinaryPosition()), out);
      out += rows_.columns.width * SizeOf(type_);
    }
  }

 private:
  void FillRow(const BinaryPosition& position, std::byte* row) const {
    const SinusoidColumns& columns = rows_.columns;
    for (int64_t i = 0; i < columns.sines; ++i) {
      SinCos both = {};
      if (position.count != 0) {
        both = SinCosOf(AngleAt(rows_.frequencies[i].floating_turns, position));
      }
      const int64_t first = i * columns.pair_stride;
      Write({columns.sin_offset + first, both.sin, both.error}, position, row);
      if (i >= columns.cosines) continue;
      Write({columns.cos_offset + first, both.cos, both.error}, position, row);
    }
  }

  struct Element {
    int64_t column;
    DoubleDouble value;
    double error;  // relative
  };

  void Write(const Element& element, const BinaryPosition& position,
             std::byte* row) const {
    const auto& [column, value, error] = element;
    std::byte* const out = row + column * SizeOf(type_);
    if (position.count == 0) {
      const bool is_sine =
          rows_.columns.WaveAt(column).kind == SinusoidColumns::Kind::kSine;
      std::memcpy(out, is_sine ? zero_ : scale_, SizeOf(type_));
      return;
    }
    if (error < 1 &&
        rounding_.TryRound(value, error * std::fabs(value.hi), out)) {
      return;
    }
    rows_.reference(position, column, type_, out);
  }

  const SinusoidRows rows_;
  const ListedAxis axis_;
  const ScaledRounding rounding_;
  const DataType type_;
  // The elements of position 0.
  const std::byte zero_[sizeof(double)] = {};
  std::byte scale_[sizeof(double)] = {};
};

}  // namespace

EvaluatorPtr PrepareListed(SinusoidRows rows, ListedAxis axis, DataType type) {
  return std::make_unique<ListedSinusoids>(std::move(rows), std::move(axis),
                                           type);
}

}  // namespace attnbias
