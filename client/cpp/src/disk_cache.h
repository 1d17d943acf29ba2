// SPDX-License-Identifier: Apache-2.0
// Reads the folder in which the Python client keeps what it fetched, as
// docs/cache.md describes it. What is damaged in it counts as missing.
#ifndef ATTNBIAS_CLIENT_CPP_SRC_DISK_CACHE_H_
#define ATTNBIAS_CLIENT_CPP_SRC_DISK_CACHE_H_

#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "attnbias/tensor.h"
#include "attnbias/v1/service.pb.h"

namespace attnbias {

// The folder that a client reads, as an absolute path; "" is none. "~" and
// "~user" are homes. INVALID_ARGUMENT where it is a file, or the home nobody's.
absl::StatusOr<std::string> CacheFolderFrom(
    const std::optional<std::string>& folder);

// What a request is filed under.
std::string CacheKey(const v1::TensorSpec& spec);

// Whether a request means a table by its name, under which a server may have
// another one.
bool NamesATable(const google::protobuf::Message& message);

// For any thread.
class DiskCache {
 public:
  explicit DiskCache(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }

  // The tensor of a request, by default the one that it had before.
  std::optional<Tensor> Find(
      const std::string& key,
      const std::optional<std::string>& fingerprint = std::nullopt) const;

  // The DescribeTensorResponse to a request, as it came; "" where there is
  // none.
  std::string FindDescription(const std::string& key) const;

 private:
  std::string Read(const char* kind, const std::string& key) const;
  bool WasVerified(const std::string& line) const;

  const std::string folder_;
  mutable std::mutex mutex_;
  // As a request's line has them. The folder's own lines stay as they are.
  mutable std::set<std::string> verified_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CLIENT_CPP_SRC_DISK_CACHE_H_
