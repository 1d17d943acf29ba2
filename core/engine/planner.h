// SPDX-License-Identifier: Apache-2.0
// Turns a request into a Plan: the only place that decides what is allowed
// about extents and outputs. Encodings decide about their own hyperparameters.
#ifndef ATTNBIAS_CORE_ENGINE_PLANNER_H_
#define ATTNBIAS_CORE_ENGINE_PLANNER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/encoding/spec.h"
#include "core/engine/plan.h"

namespace attnbias {

// Bounds of the contract.
inline constexpr int64_t kMaxPositionListLength = 262144;

// Makes one plan and is then done.
class Planner {
 public:
  Planner(TensorSpec spec, int64_t max_tensor_bytes);

  // The message begins with the field's path inside TensorSpec and ": ".
  //
  // INVALID_ARGUMENT  what is not allowed
  // OUT_OF_RANGE      positions that the encoding has no numbers for
  absl::StatusOr<PlanPtr> Make();

 private:
  absl::Status ResolveDataType();
  absl::Status ResolveExtent();
  // Those that take an extent also write what it resolves to back into it.
  absl::Status ResolveTable(TableExtent& extent);
  absl::Status ResolvePositionIds(
      const std::vector<std::vector<int64_t>>& lists);
  absl::Status ResolveGrid(GridExtent& extent);
  Range AllTokens() const;
  absl::Status ResolvePair(PairExtent& extent);
  absl::Status ResolveQueryList(PairExtent& extent);
  absl::Status ResolveQueryRange(PairExtent& extent);
  absl::Status ResolveKeyList(PairExtent& extent);
  absl::Status ResolveKeyRange(PairExtent& extent);
  absl::Status ResolveHeads(absl::string_view field,
                            std::optional<Range>& heads);
  Form CompactForm() const;
  absl::Status ResolveForm();
  absl::Status CheckDomain() const;
  absl::Status ResolveMask();
  absl::Status CheckMaskable() const;
  absl::Status ResolveParts();
  absl::Status AddPart(Part part);
  void FindFullyMaskedRows();
  void NameBytes();
  void ResolveSpec();

  TensorSpec spec_;
  const int64_t max_tensor_bytes_;
  // Becomes the result.
  Plan plan_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENGINE_PLANNER_H_
