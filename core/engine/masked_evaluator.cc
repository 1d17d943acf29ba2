// SPDX-License-Identifier: Apache-2.0
#include "core/engine/masked_evaluator.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace attnbias {
namespace {

class MaskedEvaluator final : public Evaluator {
 public:
  MaskedEvaluator(std::unique_ptr<const Evaluator> inner,
                  const ResolvedMask& mask, int64_t number_bytes)
      : inner_(std::move(inner)), mask_(mask), number_bytes_(number_bytes) {}

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override {
    const Range span = block.span;
    const Range visible = {
        std::clamp(mask_.visible.begin, span.begin, span.end),
        std::clamp(mask_.visible.end, span.begin, span.end)};
    const auto at = [&](int64_t coordinate) {
      return out + (coordinate - span.begin) * number_bytes_;
    };
    if (visible.size() > 0) {
      inner_->Fill({block.lanes, visible}, at(visible.begin),
                   lane_stride_bytes);
    }
    for (int64_t lane = 0; lane < block.lanes.size(); ++lane) {
      const int64_t offset = lane * lane_stride_bytes;
      Hide(at(span.begin) + offset, visible.begin - span.begin);
      Hide(at(visible.end) + offset, span.end - visible.end);
    }
  }

  int64_t work_per_coordinate() const override {
    return inner_->work_per_coordinate();
  }
  int64_t memory_bytes() const override { return inner_->memory_bytes(); }

 private:
  void Hide(std::byte* out, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(out + i * number_bytes_, &mask_.fill_bits, number_bytes_);
    }
  }

  const std::unique_ptr<const Evaluator> inner_;
  const ResolvedMask mask_;
  const int64_t number_bytes_;
};

}  // namespace

std::unique_ptr<const Evaluator> FoldMask(
    std::unique_ptr<const Evaluator> inner, const ResolvedMask& mask,
    int64_t number_bytes) {
  return std::make_unique<MaskedEvaluator>(std::move(inner), mask,
                                           number_bytes);
}

}  // namespace attnbias
