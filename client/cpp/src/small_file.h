// SPDX-License-Identifier: Apache-2.0
// A small file, read whole.
#ifndef ATTNBIAS_CLIENT_CPP_SRC_SMALL_FILE_H_
#define ATTNBIAS_CLIENT_CPP_SRC_SMALL_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace attnbias {

// INVALID_ARGUMENT, naming the option `name`, where it cannot be read.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path,
                                          absl::string_view name);

}  // namespace attnbias

#endif  // ATTNBIAS_CLIENT_CPP_SRC_SMALL_FILE_H_
