// SPDX-License-Identifier: Apache-2.0
// Authentication and authorization of calls. A bearer token or a certificate determines the
// caller's name, and the name determines the caller's rights.
#pragma once

#include <algorithm>
#include <atomic>
#include <bitset>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
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
#include "grpcpp/server_context.h"
#include "grpcpp/support/string_ref.h"
#include "server/access/certificates.h"
#include "server/observe/logging.h"
#include "server/observe/metrics.h"

namespace attnbias {

// Holds the digests of tokens, not the tokens themselves.
class Tokens {
 public:
  // Parses lines of the form "NAME sha256:DIGEST", where DIGEST is the token's digest as 64
  // lowercase hexadecimal digits. Ignores empty lines and those that begin with #. A name may have
  // several tokens. Returns INVALID_ARGUMENT, naming `path` and the line, for anything else, for a
  // token with two names, and for a file without tokens.
  static absl::StatusOr<Tokens> Parse(const std::string& path, std::string_view content);

  // Returns the name of the token's caller; null if the token is unknown.
  const std::string* NameOf(std::string_view token) const;

 private:
  absl::flat_hash_map<std::string, std::string> names_by_digest_;
};

// Rights of one caller.
struct Rights {
  std::bitset<kNumMethods> methods;
  // Name prefixes of the mounted tables that the caller may use.
  std::vector<std::string> table_prefixes;
  // Share of the memory budget.
  double memory_share = 1;
  int64_t concurrent_calls = std::numeric_limits<int64_t>::max();
  double bytes_per_second = std::numeric_limits<double>::infinity();

  bool MayCall(Method method) const { return methods.test(static_cast<size_t>(method)); }
};

class Policy {
 public:
  // Parses a PolicyFile (policy.proto) in JSON. Returns INVALID_ARGUMENT, naming `path` and the
  // location, for anything else, and for a file in which no caller may call any method.
  static absl::StatusOr<Policy> Parse(const std::string& path, const std::string& content);

  // Returns a policy that grants every caller everything.
  static Policy Everything();

  // Returns null for a name without rights.
  std::shared_ptr<const Rights> Find(const std::string& name) const;

  // Returns whether the name has its own entry.
  bool Names(const std::string& name) const;

 private:
  // Names without an entry have the rights of "*".
  absl::flat_hash_map<std::string, std::shared_ptr<const Rights>> callers_;
};

// Holds a value derived from files, or nothing if there are no files. If the files become invalid,
// the last good value stays in use. Thread-safe.
template <typename Value>
class ReloadableFile {
 public:
  using Contents = std::vector<std::string>;
  // Derives the value from the files' contents, in the order of the files. Errors name the file.
  using Make = std::function<absl::StatusOr<Value>(const Contents&)>;

  // `what` names the files in the log. Empty paths are ignored.
  ReloadableFile(std::string what, std::vector<std::string> paths, Make make)
      : what_(std::move(what)), paths_(std::move(paths)), make_(std::move(make)) {
    std::erase(paths_, "");
  }

  // Returns null before Load, and if there are no files.
  std::shared_ptr<const Value> Get() const {
    MutexLock lock(mutex_);
    return value_;
  }

  // Reads the files, and replaces the value if they have changed. Load and Refresh must be called
  // from the same thread.
  absl::Status Load() {
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

  // Loads, and logs the outcome.
  void Refresh() {
    const std::shared_ptr<const Value> before = Get();
    const absl::Status status = Load();
    failed_ = !status.ok();
    const std::string error(status.message());
    if (failed_ && error != last_error_) {
      LogError(absl::StrCat(what_, ": reload failed, keeping the previous content: ", error));
    } else if (!failed_ && (Get() != before || !last_error_.empty())) {
      LogInfo(absl::StrCat(what_, ": reloaded"));
    }
    last_error_ = error;
  }

  // Returns whether the current files are invalid.
  bool failed() const { return failed_; }

 private:
  // Maximum size of a file.
  static constexpr int64_t kMostBytes = 1 << 20;

  const std::string what_;
  std::vector<std::string> paths_;
  const Make make_;
  // Contents of the files from which value_ was derived.
  Contents contents_;
  std::string last_error_;
  std::atomic<bool> failed_{false};
  mutable Mutex mutex_;
  std::shared_ptr<const Value> value_ ABSL_GUARDED_BY(mutex_);
};

// Values of --tls-cert, --tls-key, --tls-client-ca, --tokens and --policy; empty by default.
struct AccessFiles {
  CertificateFiles tls;
  std::string tokens;
  std::string policy;

  bool empty() const { return tls.empty() && tokens.empty(); }
};

using ClientMetadata = std::multimap<grpc::string_ref, grpc::string_ref>;

// Returns the value of `key` as a view into `metadata`; empty unless there is exactly one value.
inline std::string_view OnlyValue(const ClientMetadata& metadata, const char* key) {
  const auto [begin, end] = metadata.equal_range(key);
  if (begin == end || std::next(begin) != end) return "";
  return {begin->second.data(), begin->second.size()};
}

// Limits the rate at which bytes are sent. Each message takes time in proportion to its size, and
// the next may be sent once that time has passed. Unused time does not accumulate. Thread-safe.
class Pacer {
 public:
  using Clock = std::chrono::steady_clock;

  // Returns the time at which `bytes` may be sent, and reserves the time that they take at this
  // rate.
  Clock::time_point Take(int64_t bytes, double bytes_per_second) {
    MutexLock lock(mutex_);
    return TakeLocked(bytes, bytes_per_second);
  }

  // If `bytes` may be sent now, does the same as Take and returns true.
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
    // The cap keeps this within the clock's range for any size and rate.
    free_from_ = begin + std::chrono::duration_cast<Clock::duration>(
                             std::min<Seconds>(takes, std::chrono::hours(24)));
    return begin;
  }

  mutable Mutex mutex_;
  Clock::time_point free_from_ ABSL_GUARDED_BY(mutex_);
};

// State shared by all calls from one caller.
struct Account {
  explicit Account(std::string name) : name(std::move(name)) {}

  const std::string name;
  std::atomic<int64_t> calls{0};
  Pacer pacer;
};

// An authenticated caller; empty if the server does not authenticate callers.
struct Identity {
  std::shared_ptr<Account> account;
  std::shared_ptr<const Rights> rights;

  explicit operator bool() const { return account != nullptr; }
};

// Thread-safe.
class Access {
 public:
  // Returns INVALID_ARGUMENT, naming the flag, for invalid files and contradictory flags.
  static absl::StatusOr<std::unique_ptr<Access>> Load(const AccessFiles& files);

  // Identifies a caller by its bearer token or, if it sent none, by its certificate. A caller that
  // has neither but connects over a socket file is named "unix". The names in a certificate are its
  // URIs, then its DNS names or, if it has neither, its common name. The first name that has an
  // entry in the policy is used or, if none has, the first name.
  //
  // UNAUTHENTICATED    none of these, or an unknown token
  // PERMISSION_DENIED  a name without rights
  absl::StatusOr<Identity> Identify(const grpc::CallbackServerContext& context) const;

  // Returns the certificates for new connections; null without TLS.
  std::shared_ptr<const Certificates> certificates() const { return certificates_.Get(); }
  // Makes the server's credentials, which are plaintext without TLS. This object outlives them.
  std::shared_ptr<grpc::ServerCredentials> MakeCredentials() const;
  // Returns whether clients need a certificate to connect.
  bool requires_certificate() const { return asks_for_names_ && tokens_.Get() == nullptr; }
  // Returns whether callers are authenticated.
  bool asks_for_names() const { return asks_for_names_; }

  // Refreshes each ReloadableFile.
  void Refresh();
  // Return whether the certificates, and whether the tokens or the policy, are invalid on disk.
  bool tls_failed() const { return certificates_.failed(); }
  bool files_failed() const { return tokens_.failed() || policy_.failed(); }

 private:
  explicit Access(const AccessFiles& files);

  absl::StatusOr<std::string> NameOf(const grpc::CallbackServerContext& context,
                                     const Policy& policy) const;
  std::shared_ptr<Account> AccountOf(const std::string& name) const;

  ReloadableFile<Certificates> certificates_;
  ReloadableFile<Tokens> tokens_;
  ReloadableFile<Policy> policy_;
  const bool asks_for_names_;
  mutable Mutex mutex_;
  // Accounts by caller name. Includes all callers with calls in progress and some earlier callers.
  mutable absl::flat_hash_map<std::string, std::shared_ptr<Account>> accounts_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnbias
