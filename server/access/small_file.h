// SPDX-License-Identifier: Apache-2.0
#ifndef ATTNBIAS_SERVER_ACCESS_SMALL_FILE_H_
#define ATTNBIAS_SERVER_ACCESS_SMALL_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace attnbias {

// All of a file of at most 1 MiB. Errors begin with the path: those of
// RegularFile, and INVALID_ARGUMENT for a larger one.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_ACCESS_SMALL_FILE_H_
