// SPDX-License-Identifier: Apache-2.0
#ifndef ATTNBIAS_CORE_ENGINE_MASKED_EVALUATOR_H_
#define ATTNBIAS_CORE_ENGINE_MASKED_EVALUATOR_H_

#include <cstdint>
#include <memory>

#include "core/encoding/evaluator.h"
#include "core/engine/resolved_mask.h"

namespace attnbias {

// An evaluator over relative positions whose masked coordinates hold the mask's
// fill. `number_bytes` is the size of one number, and the width is 1.
std::unique_ptr<const Evaluator> FoldMask(
    std::unique_ptr<const Evaluator> inner, const ResolvedMask& mask,
    int64_t number_bytes);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENGINE_MASKED_EVALUATOR_H_
