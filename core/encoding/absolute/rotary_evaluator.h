// SPDX-License-Identifier: Apache-2.0
// Lays rows of sines and cosines out as rotary tables: a part of cosines and a
// part of sines, each frequency once or twice in a row.
#ifndef ATTNBIAS_CORE_ENCODING_ABSOLUTE_ROTARY_EVALUATOR_H_
#define ATTNBIAS_CORE_ENCODING_ABSOLUTE_ROTARY_EVALUATOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/encoding/evaluator.h"
#include "core/encoding/spec/rotary.h"
#include "core/numerics/real.h"

namespace attnbias {

inline constexpr int64_t kCosLane = 0;
inline constexpr int64_t kSinLane = 1;

// Numbers of a pair in a row.
int64_t CopiesIn(RotaryLayout layout);

// Lays the numbers of `pairs` pairs out as a row.
void WriteRotaryRow(RotaryLayout layout, DataType type, const std::byte* pairs,
                    int64_t count, std::byte* out);

class RotaryEvaluator final : public Evaluator {
 public:
  // `rows` gives [sines | cosines] of the pairs that turn, in their order;
  // of all others the sine is 0 and the cosine `scale`.
  RotaryEvaluator(std::unique_ptr<const Evaluator> rows,
                  const std::vector<bool>& turns, const Real& scale,
                  RotaryLayout layout, DataType type);

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override;

  int64_t work_per_coordinate() const override {
    return rows_->work_per_coordinate();
  }
  int64_t memory_bytes() const override { return rows_->memory_bytes(); }

 private:
  // Consecutive pairs that all turn, or none.
  struct Run {
    bool turns;
    int64_t pairs;
  };

  // All pairs' numbers, from those of the pairs that turn.
  const std::byte* WithResting(const std::byte* turning, int64_t lane,
                               std::byte* out) const;

  const std::unique_ptr<const Evaluator> rows_;
  const RotaryLayout layout_;
  const DataType type_;
  const int64_t pairs_;
  int64_t turning_ = 0;
  std::vector<Run> runs_;
  std::array<std::byte, sizeof(double)> resting_cosine_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_ABSOLUTE_ROTARY_EVALUATOR_H_
