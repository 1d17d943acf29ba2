// SPDX-License-Identifier: Apache-2.0
// A mask as one interval of visible relative positions and a fill.
#ifndef ATTNBIAS_CORE_ENGINE_RESOLVED_MASK_H_
#define ATTNBIAS_CORE_ENGINE_RESOLVED_MASK_H_

#include <cstdint>
#include <limits>

#include "core/tensor/range.h"

namespace attnbias {

// A causal mask and a sliding window both say: key j is visible from query i
// when j - i lies in one interval.
struct ResolvedMask {
  static constexpr Range kAll = {std::numeric_limits<int64_t>::min() / 2,
                                 std::numeric_limits<int64_t>::max() / 2};

  // Visible relative positions; empty when nothing is visible.
  Range visible = kAll;
  // What masked elements become: the little-endian bytes of one element.
  uint64_t fill_bits = 0;

  bool masks_nothing() const { return visible == kAll; }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENGINE_RESOLVED_MASK_H_
