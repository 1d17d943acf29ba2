// SPDX-License-Identifier: Apache-2.0
// A folder that keeps payloads, shared by all processes of a machine;
// docs/cache.md describes it. A file in it is whole from the moment that it has
// its name, and is never written again.
#ifndef ATTNBIAS_CLIENT_CPP_SRC_DISK_CACHE_H_
#define ATTNBIAS_CLIENT_CPP_SRC_DISK_CACHE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnbias/client.h"
#include "attnbias/tensor.h"
#include "attnbias/v1/service.pb.h"
#include "client/cpp/src/draft.h"

namespace attnbias {

// The folder of a client, as an absolute path; "" is none. "~" and
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
  // Without `max_bytes` there is no bound; `on_error` may be null.
  DiskCache(std::string folder, std::optional<int64_t> max_bytes,
            CacheErrorFn on_error)
      : folder_(std::move(folder)),
        max_bytes_(max_bytes),
        on_error_(std::move(on_error)) {}

  const std::string& folder() const { return folder_; }

  // The tensor of a request, by default the one that it had before. What is
  // damaged counts as missing, and is removed.
  std::optional<Tensor> Find(
      const std::string& key,
      const std::optional<std::string>& fingerprint = std::nullopt);

  // The DescribeTensorResponse to a request, as it came; "" where there is
  // none.
  std::string FindDescription(const std::string& key) const;
  void StoreDescription(const std::string& key,
                        const std::string& answer) const;

  // The right to fetch the answer to a request; null while somebody else has
  // it. An error where the folder cannot be written.
  absl::StatusOr<std::unique_ptr<Draft>> TryLock(const std::string& key) const;

  // Keeps what was fetched, and gives it mapped; nothing where it cannot be
  // kept. The mask is what was asked for.
  std::optional<Tensor> Store(const std::string& key, Draft* draft,
                              const Tensor& tensor, const v1::Mask& mask);

  // Says once that the folder does not do what it is for.
  void Warn(const std::string& what, const absl::Status& why);

 private:
  // A tensor, and what a request's line says of its file.
  struct Opened {
    Tensor tensor;
    std::string line;
  };

  std::string PathOf(const char* kind, const std::string& name) const;
  std::string TensorPath(const std::string& fingerprint) const;

  // Maps a tensor, whose bytes are read only if its file is not known to have
  // been, as by the line `trusted`.
  absl::StatusOr<Opened> Open(const std::string& fingerprint,
                              const std::string& trusted);
  absl::StatusOr<Tensor> Keep(const std::string& key, Draft* draft,
                              const Tensor& tensor, const v1::Mask& mask);
  // Has a request name its tensor, and be used now.
  void Note(const std::string& key, const std::string& now,
            const std::string& before) const;
  // Has a file of requests or descriptions be this, whole from the first
  // moment; unless the folder is one that is only read.
  void Replace(const char* kind, const std::string& key,
               const std::string& bytes) const;
  // Removes what was asked for longest ago, until so many bytes more are within
  // the bound.
  void MakeRoom(int64_t size) const;
  // Removes the drafts of those who died over them.
  void Sweep() const;
  // The files of a folder that the cache may have made.
  std::vector<std::string> NamesIn(const char* kind) const;

  const std::string folder_;
  const std::optional<int64_t> max_bytes_;
  const CacheErrorFn on_error_;
  std::mutex mutex_;
  // As requests' lines have them.
  std::set<std::string> verified_;
  bool has_warned_ = false;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CLIENT_CPP_SRC_DISK_CACHE_H_
