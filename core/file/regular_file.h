// SPDX-License-Identifier: Apache-2.0
// Files that somebody else put there: opened only where they are regular, and
// lie where they should.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attnbias {

class RegularFile {
 public:
  // NOT_FOUND if there is no such file, INVALID_ARGUMENT if it cannot be read
  // or is no regular one; messages begin with the path. Waits for nobody, as a
  // FIFO would have it.
  //
  // With a `folder` the file must lie in it once all links are followed, or
  // INVALID_ARGUMENT: who fills the folder does not choose what else is read.
  // The links of a snapshot in Hugging Face's cache may lead to its blobs.
  static absl::StatusOr<RegularFile> Open(const std::string& path,
                                          const std::string& folder = "");

  RegularFile(RegularFile&& other) noexcept;
  ~RegularFile();

  const std::string& path() const { return path_; }
  // In bytes, when it was opened.
  int64_t size() const { return size_; }

  // INVALID_ARGUMENT, its message without the path, if the file has become
  // shorter.
  absl::StatusOr<std::string> Read(int64_t begin, int64_t end) const;

 private:
  RegularFile(std::string path, int descriptor);
  absl::Status CheckKind();
  absl::Status CheckPlace(const std::string& folder) const;

  std::string path_;
  int descriptor_;
  int64_t size_ = 0;
};

// All of a file, as Open has it. INVALID_ARGUMENT too if it has more than
// `most` bytes.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path,
                                            int64_t most,
                                            const std::string& folder = "");

}  // namespace attnbias
