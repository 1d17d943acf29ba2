// SPDX-License-Identifier: Apache-2.0
// What small files say, read again when they change.
#ifndef ATTNBIAS_SERVER_ACCESS_RELOADED_H_
#define ATTNBIAS_SERVER_ACCESS_RELOADED_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/base/mutex.h"
#include "core/file/regular_file.h"
#include "server/logging.h"

namespace attnbias {

// A value that is made of the contents of files. What a change makes invalid
// leaves the last good value in use. Safe for any number of threads.
template <typename Value>
class Reloaded {
 public:
  using Contents = std::vector<std::string>;
  // Of the files' contents, in their order. Its errors name the file.
  using Make = std::function<absl::StatusOr<Value>(const Contents&)>;

  // `what` the files are is for the log.
  static absl::StatusOr<std::unique_ptr<Reloaded>> Load(
      std::string what, std::vector<std::string> paths, Make make) {
    std::unique_ptr<Reloaded> loaded(
        new Reloaded(std::move(what), std::move(paths), std::move(make)));
    ATTNBIAS_RETURN_IF_ERROR(loaded->Read());
    return loaded;
  }

  std::shared_ptr<const Value> Get() const {
    MutexLock lock(mutex_);
    return value_;
  }

  // Reads the files, and makes the value anew if they have changed; a line in
  // the log says how that went. From one thread.
  void Refresh() {
    const std::shared_ptr<const Value> before = Get();
    const absl::Status status = Read();
    failed_ = !status.ok();
    const std::string error(status.message());
    if (failed_ && error != last_error_) {
      LogError(absl::StrCat(what_, ": those read before stay in use: ", error));
    } else if (!failed_ && (Get() != before || !last_error_.empty())) {
      LogInfo(absl::StrCat(what_, ": read anew"));
    }
    last_error_ = error;
  }

  // Whether the files, as they are now, make no value.
  bool failed() const { return failed_; }

 private:
  Reloaded(std::string what, std::vector<std::string> paths, Make make)
      : what_(std::move(what)),
        paths_(std::move(paths)),
        make_(std::move(make)) {}

  absl::Status Read() {
    Contents contents;
    for (const std::string& path : paths_) {
      ATTNBIAS_ASSIGN_OR_RETURN(std::string content,
                                ReadRegularFile(path, kMostBytes));
      contents.push_back(std::move(content));
    }
    if (contents == contents_) return absl::OkStatus();
    ATTNBIAS_ASSIGN_OR_RETURN(Value value, make_(contents));
    contents_ = std::move(contents);
    MutexLock lock(mutex_);
    value_ = std::make_shared<const Value>(std::move(value));
    return absl::OkStatus();
  }

  // Of a file.
  static constexpr int64_t kMostBytes = 1 << 20;

  const std::string what_;
  const std::vector<std::string> paths_;
  const Make make_;
  // Those that the value was made of.
  Contents contents_;
  std::string last_error_;
  std::atomic<bool> failed_{false};
  mutable Mutex mutex_;
  std::shared_ptr<const Value> value_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_ACCESS_RELOADED_H_
