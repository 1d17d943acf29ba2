// SPDX-License-Identifier: Apache-2.0
// Which queries see no key through a mask.
#ifndef ATTNBIAS_CORE_ENGINE_VISIBLE_ROWS_H_
#define ATTNBIAS_CORE_ENGINE_VISIBLE_ROWS_H_

#include <vector>

#include "core/tensor/positions.h"
#include "core/tensor/range.h"

namespace attnbias {

// The queries q for which no k in `keys` has k - q in `visible`: indices into
// `queries`, as ascending ranges. Takes time by the lengths of lists, not of
// ranges.
std::vector<Range> RowsWithoutVisibleKeys(const Positions& queries,
                                          const Positions& keys, Range visible);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENGINE_VISIBLE_ROWS_H_
