// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/absolute/rotary_evaluator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "core/tensor/element.h"

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

// Consecutive pairs that all turn, or none.
struct Group {
  bool turns;
  int64_t pairs;
};

class RotaryEvaluator final : public Evaluator {
 public:
  RotaryEvaluator(EvaluatorPtr rows, const std::vector<bool>& turns,
                  const Real& scale, v1::RotaryLayout layout, DataType type)
      : rows_(std::move(rows)),
        layout_(layout),
        type_(type),
        pairs_(static_cast<int64_t>(turns.size())) {
    for (const bool turning : turns) {
      if (groups_.empty() || groups_.back().turns != turning) {
        groups_.push_back({turning, 0});
      }
      ++groups_.back().pairs;
      if (turning) ++turning_;
    }
    RoundReal(scale, type, resting_cosine_.data());
  }

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override {
    const int64_t lane_bytes = turning_ * SizeOf(type_);
    const int64_t row_bytes = pairs_ * CopiesIn(layout_) * SizeOf(type_);
    const int64_t most = std::clamp<int64_t>(kPairPieceBytes / (2 * lane_bytes),
                                             1, kMostPieceRows);
    std::vector<std::byte> piece(std::min(most, block.span.size()) * 2 *
                                 lane_bytes);
    std::vector<std::byte> all_pairs(pairs_ * SizeOf(type_));
    for (int64_t first = block.span.begin; first < block.span.end;) {
      const int64_t end = std::min(first + most, block.span.end);
      rows_->Fill({{0, 1}, {first, end}}, piece.data(), 0);
      for (int64_t lane = block.lanes.begin; lane < block.lanes.end; ++lane) {
        std::byte* to = out + (lane - block.lanes.begin) * lane_stride_bytes +
                        (first - block.span.begin) * row_bytes;
        const std::byte* from =
            piece.data() + (lane == kCosLane ? lane_bytes : 0);
        for (int64_t row = first; row < end; ++row) {
          WriteRotaryRow(layout_, type_,
                         WithResting(from, lane, all_pairs.data()), pairs_, to);
          from += 2 * lane_bytes;
          to += row_bytes;
        }
      }
      first = end;
    }
  }

 private:
  // All pairs' numbers, from those of the pairs that turn.
  const std::byte* WithResting(const std::byte* turning, int64_t lane,
                               std::byte* out) const {
    if (turning_ == pairs_) return turning;
    constexpr std::byte kZero[sizeof(double)] = {};
    const std::byte* resting =
        lane == kCosLane ? resting_cosine_.data() : kZero;
    std::byte* to = out;
    for (const Group& group : groups_) {
      const int64_t size = group.pairs * SizeOf(type_);
      if (group.turns) {
        std::memcpy(to, turning, size);
        turning += size;
      } else {
        RepeatElement(type_, resting, group.pairs, to);
      }
      to += size;
    }
    return out;
  }

  const EvaluatorPtr rows_;
  const v1::RotaryLayout layout_;
  const DataType type_;
  const int64_t pairs_;
  int64_t turning_ = 0;
  std::vector<Group> groups_;
  std::array<std::byte, sizeof(double)> resting_cosine_;
};

}  // namespace

int64_t RotaryBytes(int64_t pairs) {
  // Groups while their list grows, a piece of a row at least, and all pairs.
  return kPairPieceBytes +
         pairs * int64_t{3 * sizeof(Group) + 3 * sizeof(double)};
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

EvaluatorPtr PrepareRotary(EvaluatorPtr rows, const std::vector<bool>& turns,
                           const Real& scale, v1::RotaryLayout layout,
                           DataType type) {
  return std::make_unique<RotaryEvaluator>(std::move(rows), turns, scale,
                                           layout, type);
}

}  // namespace attnbias
