// SPDX-License-Identifier: Apache-2.0
// Turns a request into a Plan: the only place that decides what is allowed
// about outputs. Encodings decide about their own hyperparameters, extent.h
// about extents.
#ifndef ATTNBIAS_CORE_ENGINE_PLANNER_H_
#define ATTNBIAS_CORE_ENGINE_PLANNER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/engine/plan.h"
#include "core/request/tables.h"

namespace attnbias {

// `spec` names tables of `tables` alone. An error's message begins with the
// field's path inside TensorSpec and ": ".
//
// INVALID_ARGUMENT  what is not allowed
// OUT_OF_RANGE      positions that the encoding has no numbers for
absl::StatusOr<PlanPtr> MakePlan(v1::TensorSpec spec, const Tables& tables,
                                 int64_t max_tensor_bytes);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENGINE_PLANNER_H_
