// SPDX-License-Identifier: Apache-2.0
#ifndef ATTNBIAS_CORE_ENCODING_COMMON_ROW_RUN_H_
#define ATTNBIAS_CORE_ENCODING_COMMON_ROW_RUN_H_

#include <cstdint>

namespace attnbias {

// Coordinates from one on that read the same row of a table, up to `end`.
struct RowRun {
  int64_t row;
  int64_t end;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_COMMON_ROW_RUN_H_
