// SPDX-License-Identifier: Apache-2.0
// Whole files: reads with a bound, writes that are all or nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace attnbias {

// A file that is read piece by piece.
class InputFile {
 public:
  static absl::StatusOr<InputFile> Open(const std::string& path);

  int64_t size() const { return size_; }

  // `size` bytes from `offset`; the caller has checked them against size().
  absl::StatusOr<std::string> Read(int64_t offset, int64_t size);

 private:
  InputFile(std::ifstream stream, std::string path, int64_t size)
      : stream_(std::move(stream)), path_(std::move(path)), size_(size) {}

  std::ifstream stream_;
  std::string path_;
  int64_t size_;
};

// INVALID_ARGUMENT if a tensor to be sent is over the limit.
absl::Status CheckAtMost(int64_t bytes, int64_t max_bytes);

// Writes `pieces` to a file beside `path` and renames it: `path` is the old
// file or the whole new one, never a part.
absl::Status WriteFileAtomically(const std::string& path,
                                 const std::vector<absl::string_view>& pieces);

}  // namespace attnbias
