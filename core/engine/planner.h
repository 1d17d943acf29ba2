// SPDX-License-Identifier: Apache-2.0
// Turns a request into a Plan: the only place that decides what is allowed
// about outputs. Encodings decide about their own hyperparameters, extent.h
// about extents.
#ifndef ATTNBIAS_CORE_ENGINE_PLANNER_H_
#define ATTNBIAS_CORE_ENGINE_PLANNER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/encoding/spec/tensor_spec.h"
#include "core/engine/plan.h"

namespace attnbias {

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
  Form CompactForm() const;
  absl::Status ResolveForm();
  void ResolveCoordinates();
  absl::Status ResolveMask();
  absl::Status CheckMaskable() const;
  absl::Status ResolveParts();
  absl::Status AddPart(Part part);
  void FindFullyMaskedRows();
  void NameBytes();
  void ResolveSpec();

  TensorSpec spec_;
  Extent resolved_extent_;
  const int64_t max_tensor_bytes_;
  // Becomes the result.
  Plan plan_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENGINE_PLANNER_H_
