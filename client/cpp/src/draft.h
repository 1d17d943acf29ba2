// SPDX-License-Identifier: Apache-2.0
// A file in the making, whose lock is the right to make it. The kernel ends
// that when its holder dies.
#ifndef ATTNBIAS_CLIENT_CPP_SRC_DRAFT_H_
#define ATTNBIAS_CLIENT_CPP_SRC_DRAFT_H_

#include <sys/stat.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attnbias {

// For one thread.
class Draft {
 public:
  // Null while somebody else has the lock, in this process or another. An error
  // where the folder cannot be written or has no locks.
  static absl::StatusOr<std::unique_ptr<Draft>> TryLock(
      const std::string& path);

  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  // Ends the right, and removes what was not given another name.
  ~Draft();

  const std::string& path() const { return path_; }

  // Writes it, in place of what was begun.
  absl::Status Write(std::initializer_list<std::string_view> pieces);
  // Brings it to the disk, and says what it is there.
  absl::StatusOr<struct stat> Sync();
  // Gives it another name, in place of what has that.
  absl::Status RenameTo(const std::string& path);

 private:
  Draft(std::string path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}

  // Whether the file still has the name that it was opened by.
  bool IsAtItsPath() const;

  const std::string path_;
  const int descriptor_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CLIENT_CPP_SRC_DRAFT_H_
