// SPDX-License-Identifier: Apache-2.0
// Early return on error, in the shape newer Abseils have it.
#ifndef ATTNBIAS_CORE_BASE_STATUS_MACROS_H_
#define ATTNBIAS_CORE_BASE_STATUS_MACROS_H_

#include "absl/status/status.h"

// Returns from the function when `expression`, an absl::Status, is an error.
#define ATTNBIAS_RETURN_IF_ERROR(expression)                  \
  do {                                                        \
    if (absl::Status status_ = (expression); !status_.ok()) { \
      return status_;                                         \
    }                                                         \
  } while (false)

#endif  // ATTNBIAS_CORE_BASE_STATUS_MACROS_H_
