// SPDX-License-Identifier: Apache-2.0
// Opens a file from an untrusted folder only if it is a regular file and lies inside the folder.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attnbias {

class RegularFile {
 public:
  // Opens a file without blocking, even on a FIFO. Returns NOT_FOUND if the file does not exist,
  // and INVALID_ARGUMENT if it cannot be read or is not regular; messages begin with the path.
  //
  // If `folder` is given, returns INVALID_ARGUMENT unless the file lies in it after all links are
  // followed, so that the folder's contents cannot refer to files elsewhere. Links in a Hugging
  // Face cache snapshot may point to the blobs of the snapshot's model.
  static absl::StatusOr<RegularFile> Open(const std::string& path, const std::string& folder = "");

  RegularFile(RegularFile&& other) noexcept;
  ~RegularFile();

  const std::string& path() const { return path_; }
  // Size in bytes when the file was opened.
  int64_t size() const { return size_; }

  // Reads bytes [begin, end). Returns INVALID_ARGUMENT, without the path in its message, if the
  // file has become shorter.
  absl::StatusOr<std::string> Read(int64_t begin, int64_t end) const;

 private:
  RegularFile(std::string path, int descriptor);
  absl::Status CheckPlace(const std::string& folder) const;

  std::string path_;
  int descriptor_;
  int64_t size_ = 0;
};

// Opens a file with Open and reads all of it. Also returns INVALID_ARGUMENT if the file has more
// than `most` bytes.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path, int64_t most,
                                            const std::string& folder = "");

}  // namespace attnbias
