// SPDX-License-Identifier: Apache-2.0
#include "server/access/small_file.h"

#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "core/file/regular_file.h"

namespace attnbias {

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  constexpr int64_t kMostBytes = 1 << 20;
  ATTNBIAS_ASSIGN_OR_RETURN(const RegularFile file, RegularFile::Open(path));
  if (file.size() > kMostBytes) {
    return Invalid(path, ": got ", file.size(), " bytes, want at most ",
                   kMostBytes);
  }
  absl::StatusOr<std::string> content = file.Read(0, file.size());
  if (!content.ok()) return Located(path, content.status());
  return content;
}

}  // namespace attnbias
