// SPDX-License-Identifier: Apache-2.0
// Who calls, and what they may do.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/base/mutex.h"
#include "core/file/regular_file.h"
#include "core/mount/registry.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/string_ref.h"
#include "server/access/certificates.h"
#include "server/access/policy.h"
#include "server/observe/logging.h"

namespace attnbias {

// A value that is made of the contents of files. What a change makes invalid leaves the last good
// value in use. Safe for any number of threads.
template <typename Value>
class Reloaded {
 public:
  using Contents = std::vector<std::string>;
  // Of the files' contents, in their order. Its errors name the file.
  using Make = std::function<absl::StatusOr<Value>(const Contents&)>;

  // `what` the files are is for the log.
  static absl::StatusOr<std::unique_ptr<Reloaded>> Load(std::string what,
                                                        std::vector<std::string> paths, Make make) {
    std::unique_ptr<Reloaded> loaded(
        new Reloaded(std::move(what), std::move(paths), std::move(make)));
    ATTNBIAS_RETURN_IF_ERROR(loaded->Read());
    return loaded;
  }

  std::shared_ptr<const Value> Get() const {
    MutexLock lock(mutex_);
    return value_;
  }

  // Reads the files, and makes the value anew if they have changed; a line in the log says how that
  // went. From one thread.
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
      : what_(std::move(what)), paths_(std::move(paths)), make_(std::move(make)) {}

  absl::Status Read() {
    Contents contents;
    for (const std::string& path : paths_) {
      ATTNBIAS_ASSIGN_OR_RETURN(std::string content, ReadRegularFile(path, kMostBytes));
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

// The values of --tls-cert, --tls-key, --tls-client-ca, --tokens and --policy; empty where they are
// not given.
struct AccessFiles {
  CertificateFiles tls;
  std::string tokens;
  std::string policy;

  bool empty() const { return tls.empty() && tokens.empty(); }
};

// What a client sends beside its request.
using ClientMetadata = std::multimap<grpc::string_ref, grpc::string_ref>;

// The one value of `key`, part of `metadata`; empty where it has none or several.
inline std::string_view OnlyValue(const ClientMetadata& metadata, const char* key) {
  const auto [begin, end] = metadata.equal_range(key);
  if (begin == end || std::next(begin) != end) return "";
  return {begin->second.data(), begin->second.size()};
}

// Limits the rate of messages: a message may be sent when those before it have taken their time.
// Unused time is not saved. Safe for any number of threads.
class Pacer {
 public:
  using Clock = std::chrono::steady_clock;

  // Returns when `bytes` may be sent at this rate. The next message follows them.
  Clock::time_point Take(int64_t bytes, double bytes_per_second) {
    MutexLock lock(mutex_);
    return TakeLocked(bytes, bytes_per_second);
  }

  // Takes as Take does and returns true, if `bytes` may be sent now.
  bool TryTake(int64_t bytes, double bytes_per_second) {
    MutexLock lock(mutex_);
    if (free_from_ > Clock::now()) return false;
    TakeLocked(bytes, bytes_per_second);
    return true;
  }

  // Returns the time until the next message may be sent.
  Clock::duration Backlog() const {
    MutexLock lock(mutex_);
    return std::max(free_from_ - Clock::now(), Clock::duration::zero());
  }

 private:
  Clock::time_point TakeLocked(int64_t bytes, double bytes_per_second)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    using Seconds = std::chrono::duration<double>;
    const Seconds takes(static_cast<double>(bytes) / bytes_per_second);
    const Clock::time_point begin = std::max(free_from_, Clock::now());
    // Keeps within the clock's range, whatever the size and the rate.
    free_from_ = begin + std::chrono::duration_cast<Clock::duration>(
                             std::min<Seconds>(takes, std::chrono::hours(24)));
    return begin;
  }

  mutable Mutex mutex_;
  Clock::time_point free_from_ ABSL_GUARDED_BY(mutex_);
};

// What all calls of one name have in common.
struct Account {
  explicit Account(std::string name) : name(std::move(name)) {}

  const std::string name;
  std::atomic<int64_t> calls{0};
  Pacer pacer;
};

// A caller that has a name; empty where the server asks for none.
struct Identity {
  std::shared_ptr<Account> account;
  std::shared_ptr<const Rights> rights;

  explicit operator bool() const { return account != nullptr; }
};

// Safe for any number of threads.
class Access {
 public:
  // INVALID_ARGUMENT, naming the flag, for files that cannot be used and flags that do not go
  // together.
  static absl::StatusOr<std::unique_ptr<Access>> Load(const AccessFiles& files);

  // Who calls: by bearer token, else by certificate, else as whoever may write to the server's
  // socket file, "unix". Their names are Tokens' and of a certificate the first of its URIs, then
  // its DNS names, that the policy has an entry for, or the first of them; its common name if it
  // has neither.
  //
  // UNAUTHENTICATED    none of these, or a token that is not known
  // PERMISSION_DENIED  a name that may do nothing
  absl::StatusOr<Identity> Identify(const grpc::CallbackServerContext& context) const;

  // The certificates that new connections have; null without TLS.
  std::shared_ptr<const Certificates> certificates() const {
    return certificates_ == nullptr ? nullptr : certificates_->Get();
  }
  bool has_tokens() const { return tokens_ != nullptr; }
  // Whether callers have to have a name.
  bool asks_for_names() const { return asks_for_names_; }

  // Reads the files again, as Reloaded does.
  void Refresh();
  // Whether the certificates, or tokens and policy, on disk cannot be used.
  bool tls_failed() const;
  bool files_failed() const;

 private:
  Access() = default;

  // The name of whoever calls.
  absl::StatusOr<std::string> NameOf(const grpc::CallbackServerContext& context,
                                     const Policy& policy) const;
  std::shared_ptr<Account> AccountOf(const std::string& name) const;

  std::unique_ptr<Reloaded<Certificates>> certificates_;
  std::unique_ptr<Reloaded<Tokens>> tokens_;
  std::unique_ptr<Reloaded<Policy>> policy_;
  bool asks_for_names_ = false;
  mutable Mutex mutex_;
  // Of names that have calls under way, and some that had.
  mutable absl::flat_hash_map<std::string, std::shared_ptr<Account>> accounts_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnbias
