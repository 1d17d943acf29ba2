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

// The source of pairs that do not turn.
constexpr int kResting = -1;

// Consecutive pairs of one source, which begin with its pair `first`.
struct Run {
  int source;
  int64_t first;
  int64_t pairs;
};

class RotaryEvaluator final : public Evaluator {
 public:
  RotaryEvaluator(std::vector<RotaryRows> sources, int64_t pairs,
                  const Real& scale, v1::RotaryLayout layout, DataType type)
      : sources_(std::move(sources)),
        layout_(layout),
        type_(type),
        pairs_(pairs) {
    std::vector<size_t> next(sources_.size());
    for (int64_t pair = 0; pair < pairs_; ++pair) {
      Run run = {kResting, 0, 0};
      for (size_t i = 0; i < sources_.size(); ++i) {
        const std::vector<int64_t>& own = sources_[i].pairs;
        if (next[i] == own.size() || own[next[i]] != pair) continue;
        run = {static_cast<int>(i), static_cast<int64_t>(next[i]++), 0};
        ++turning_;
      }
      if (runs_.empty() || runs_.back().source != run.source) {
        runs_.push_back(run);
      }
      ++runs_.back().pairs;
    }
    RoundReal(scale, type, resting_cosine_.data());
  }

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override {
    const int64_t row_bytes = pairs_ * CopiesIn(layout_) * SizeOf(type_);
    const int64_t turning_bytes = 2 * turning_ * SizeOf(type_);
    const int64_t most =
        std::clamp<int64_t>(kPairPieceBytes / turning_bytes, 1, kMostPieceRows);
    std::vector<std::byte> piece(std::min(most, block.span.size()) *
                                 turning_bytes);
    std::vector<std::byte> all_pairs(pairs_ * SizeOf(type_));
    // The next row of each source.
    std::vector<const std::byte*> rows(sources_.size());
    for (int64_t first = block.span.begin; first < block.span.end;) {
      const int64_t end = std::min(first + most, block.span.end);
      std::byte* to = piece.data();
      for (const RotaryRows& source : sources_) {
        source.rows->Fill({{0, 1}, {first, end}}, to, 0);
        to += (end - first) * 2 * LaneBytes(source);
      }
      for (int64_t lane = block.lanes.begin; lane < block.lanes.end; ++lane) {
        const std::byte* from = piece.data();
        for (size_t i = 0; i < sources_.size(); ++i) {
          rows[i] = from + (lane == kCosLane ? LaneBytes(sources_[i]) : 0);
          from += (end - first) * 2 * LaneBytes(sources_[i]);
        }
        to = out + (lane - block.lanes.begin) * lane_stride_bytes +
             (first - block.span.begin) * row_bytes;
        for (int64_t row = first; row < end; ++row, to += row_bytes) {
          WriteRotaryRow(layout_, type_, Joined(rows, lane, all_pairs.data()),
                         pairs_, to);
          for (size_t i = 0; i < sources_.size(); ++i) {
            rows[i] += 2 * LaneBytes(sources_[i]);
          }
        }
      }
      first = end;
    }
  }

 private:
  int64_t LaneBytes(const RotaryRows& source) const {
    return static_cast<int64_t>(source.pairs.size()) * SizeOf(type_);
  }

  // Returns the numbers of all pairs, perhaps in `out`.
  const std::byte* Joined(const std::vector<const std::byte*>& rows,
                          int64_t lane, std::byte* out) const {
    if (runs_.size() == 1) return rows[runs_.front().source];
    constexpr std::byte kZero[sizeof(double)] = {};
    const std::byte* resting =
        lane == kCosLane ? resting_cosine_.data() : kZero;
    std::byte* to = out;
    for (const Run& run : runs_) {
      const int64_t size = run.pairs * SizeOf(type_);
      if (run.source != kResting) {
        std::memcpy(to, rows[run.source] + run.first * SizeOf(type_), size);
      } else {
        RepeatElement(type_, resting, run.pairs, to);
      }
      to += size;
    }
    return out;
  }

  const std::vector<RotaryRows> sources_;
  const v1::RotaryLayout layout_;
  const DataType type_;
  const int64_t pairs_;
  int64_t turning_ = 0;
  std::vector<Run> runs_;
  std::array<std::byte, sizeof(double)> resting_cosine_;
};

}  // namespace

int64_t RotaryBytes(int64_t pairs) {
  // Runs and lists of pairs while they grow, a piece of a row at least, and all
  // pairs.
  return kPairPieceBytes +
         pairs * int64_t{3 * sizeof(Run) + 3 * sizeof(int64_t) +
                         3 * sizeof(double)};
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

EvaluatorPtr PrepareRotary(std::vector<RotaryRows> rows, int64_t pairs,
                           const Real& scale, v1::RotaryLayout layout,
                           DataType type) {
  return std::make_unique<RotaryEvaluator>(std::move(rows), pairs, scale,
                                           layout, type);
}

}  // namespace attnbias
