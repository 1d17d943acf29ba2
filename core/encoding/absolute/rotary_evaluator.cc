// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/absolute/rotary_evaluator.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace attnbias {
namespace {

// The other lane has the sines.
constexpr int64_t kCosLane = 0;

// Rows are laid out in pieces of about this size, which stays in a core's own
// cache.
constexpr int64_t kPairPieceBytes = int64_t{128} << 10;
constexpr int64_t kMostPieceRows = 1024;

template <typename Element>
void RepeatEach(const std::byte* elements, int64_t count, std::byte* out) {
  for (int64_t i = 0; i < count; ++i) {
    Element pair[2];
    std::memcpy(&pair[0], elements + i * sizeof(Element), sizeof(Element));
    pair[1] = pair[0];
    std::memcpy(out + i * sizeof(pair), pair, sizeof(pair));
  }
}

class RotaryEvaluator final : public Evaluator {
 public:
  RotaryEvaluator(EvaluatorPtr rows, int64_t pairs, v1::RotaryLayout layout,
                  DataType type)
      : rows_(std::move(rows)), pairs_(pairs), layout_(layout), type_(type) {}

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override {
    const int64_t half_bytes = pairs_ * SizeOf(type_);
    const int64_t row_bytes = CopiesIn(layout_) * half_bytes;
    const int64_t most = std::clamp<int64_t>(kPairPieceBytes / (2 * half_bytes),
                                             1, kMostPieceRows);
    std::vector<std::byte> piece(std::min(most, block.span.size()) * 2 *
                                 half_bytes);
    for (int64_t first = block.span.begin; first < block.span.end;) {
      const int64_t end = std::min(first + most, block.span.end);
      rows_->Fill({{0, 1}, {first, end}}, piece.data(), 0);
      for (int64_t lane = block.lanes.begin; lane < block.lanes.end; ++lane) {
        const std::byte* from =
            piece.data() + (lane == kCosLane ? half_bytes : 0);
        std::byte* to = out + (lane - block.lanes.begin) * lane_stride_bytes +
                        (first - block.span.begin) * row_bytes;
        for (int64_t row = first; row < end; ++row) {
          WriteRotaryRow(layout_, type_, from, pairs_, to);
          from += 2 * half_bytes;
          to += row_bytes;
        }
      }
      first = end;
    }
  }

 private:
  const EvaluatorPtr rows_;
  const int64_t pairs_;
  const v1::RotaryLayout layout_;
  const DataType type_;
};

}  // namespace

int64_t RotaryBytes(int64_t pairs) {
  // A piece of one row at least.
  return kPairPieceBytes + 2 * pairs * int64_t{sizeof(double)};
}

int64_t CopiesIn(v1::RotaryLayout layout) {
  return layout == v1::ROTARY_LAYOUT_COMPACT ? 1 : 2;
}

void WriteRotaryRow(v1::RotaryLayout layout, DataType type,
                    const std::byte* pairs, int64_t count, std::byte* out) {
  const int64_t size = count * SizeOf(type);
  if (layout == v1::ROTARY_LAYOUT_INTERLEAVED) {
    switch (SizeOf(type)) {
      case 2:
        return RepeatEach<uint16_t>(pairs, count, out);
      case 4:
        return RepeatEach<uint32_t>(pairs, count, out);
      default:
        return RepeatEach<uint64_t>(pairs, count, out);
    }
  }
  std::memcpy(out, pairs, size);
  if (layout == v1::ROTARY_LAYOUT_HALF) std::memcpy(out + size, pairs, size);
}

EvaluatorPtr PrepareRotary(EvaluatorPtr rows, int64_t pairs,
                           v1::RotaryLayout layout, DataType type) {
  return std::make_unique<RotaryEvaluator>(std::move(rows), pairs, layout,
                                           type);
}

}  // namespace attnbias
