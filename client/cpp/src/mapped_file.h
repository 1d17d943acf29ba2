// SPDX-License-Identifier: Apache-2.0
// A file, mapped read-only for as long as somebody holds it.
#ifndef ATTNBIAS_CLIENT_CPP_SRC_MAPPED_FILE_H_
#define ATTNBIAS_CLIENT_CPP_SRC_MAPPED_FILE_H_

#include <sys/stat.h>

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace attnbias {

class MappedFile {
 public:
  // NOT_FOUND where there is no such file.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(
      const std::string& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::string_view bytes() const {
    return {static_cast<const char*>(address_),
            static_cast<size_t>(status_.st_size)};
  }
  // When it was opened.
  const struct stat& status() const { return status_; }

 private:
  MappedFile(void* address, const struct stat& status)
      : address_(address), status_(status) {}

  void* const address_;  // null: the file is empty
  const struct stat status_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CLIENT_CPP_SRC_MAPPED_FILE_H_
