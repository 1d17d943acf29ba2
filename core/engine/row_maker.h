// SPDX-License-Identifier: Apache-2.0
// Makes pieces of a plan's rows from a band, or from an evaluator.
#ifndef ATTNBIAS_CORE_ENGINE_ROW_MAKER_H_
#define ATTNBIAS_CORE_ENGINE_ROW_MAKER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "core/base/caller.h"
#include "core/cache/band.h"
#include "core/cache/byte_budget.h"
#include "core/engine/plan.h"

namespace attnbias {

// Where a payload's numbers come from: a band that covers the plan's hull, or
// an evaluator that has the plan's mask folded in.
struct NumberSource {
  BandPtr band;
  // Outlives the evaluator, for whose memory it stands.
  ByteBudget::Reservation evaluator_memory;
  EvaluatorPtr evaluator;
  // Bytes of one lane at one coordinate.
  int64_t coordinate_bytes = 0;
  CallerPtr caller;

  // Writes one lane's numbers over `span` to `out`. For a DENSE encoding,
  // `query` is the query's position.
  void Copy(int64_t lane, Range span, int64_t query, std::byte* out) const {
    if (band == nullptr) {
      evaluator->Fill({{lane, lane + 1}, span, query}, out, 0);
    } else {
      std::memcpy(out, band->At(lane, span.begin),
                  span.size() * coordinate_bytes);
    }
  }
};

// One of Plan::rows(): a lane, and a query counted from the first.
struct Row {
  int64_t lane = 0;
  int64_t query = 0;
};

class RowMaker {
 public:
  // `plan` outlives this.
  RowMaker(const Plan* plan, NumberSource source);

  const NumberSource& source() const { return source_; }

  // Writes elements `elements` of a row to `out`.
  void Make(const Row& row, Range elements, std::byte* out) const;
  // Writes numbers of an answer by axis, counted over all its parts.
  void MakeByAxis(Range numbers, std::byte* out) const;

 private:
  void CopyNumbers(const Row& row, Range elements, std::byte* out) const;
  void CopyColumns(const Row& row, Range elements, std::byte* out) const;
  void SetBorder(const Row& row, Range elements, std::byte* out) const;
  void HideMasked(const Row& row, Range elements, std::byte* out) const;

  const Plan& plan_;
  const NumberSource source_;
  const int64_t element_bytes_;
};

// The border of all heads.
std::vector<std::byte> BorderOf(const Plan& plan);

// Whether rows hold masked elements that their source does not.
bool MasksRows(const Plan& plan);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENGINE_ROW_MAKER_H_
