// SPDX-License-Identifier: Apache-2.0
// Early return on error, in the shape newer Abseils have it.
#ifndef ATTNBIAS_CORE_BASE_STATUS_MACROS_H_
#define ATTNBIAS_CORE_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"

// Returns from the function when `expression`, an absl::Status, is an error.
#define ATTNBIAS_RETURN_IF_ERROR(expression)                  \
  do {                                                        \
    if (absl::Status status_ = (expression); !status_.ok()) { \
      return status_;                                         \
    }                                                         \
  } while (false)

// Returns from the function when `expression`, an absl::StatusOr, is an error;
// otherwise its value becomes `declaration`, a variable or its declaration:
//
//   ATTNBIAS_ASSIGN_OR_RETURN(const PlanPtr plan, engine.MakePlan(spec));
#define ATTNBIAS_ASSIGN_OR_RETURN(declaration, ...)                            \
  ATTNBIAS_ASSIGN_OR_RETURN_AS_(ATTNBIAS_STATUS_CONCAT_(status_or_, __LINE__), \
                                declaration, (__VA_ARGS__))
// What is declared cannot stand in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define ATTNBIAS_ASSIGN_OR_RETURN_AS_(result, declaration, expression) \
  auto result = expression;                                            \
  if (!result.ok()) return std::move(result).status();                 \
  declaration = *std::move(result)
// NOLINTEND(bugprone-macro-parentheses)
#define ATTNBIAS_STATUS_CONCAT_(a, b) ATTNBIAS_STATUS_CONCAT_AGAIN_(a, b)
#define ATTNBIAS_STATUS_CONCAT_AGAIN_(a, b) a##b

#endif  // ATTNBIAS_CORE_BASE_STATUS_MACROS_H_
