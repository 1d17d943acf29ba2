// SPDX-License-Identifier: Apache-2.0
// Who wants a result.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

namespace attnbias {

// Whose memory it is that a caller takes.
struct Holder {
  std::string name;
  // Bytes that all its callers may take together.
  int64_t max_bytes = std::numeric_limits<int64_t>::max();
};

// Threads are shared out by connection and by what each caller has used, memory
// by holder: the connection, where nothing else is said. A caller may cease to
// want its result, which whoever computes looks at.
class Caller {
 public:
  explicit Caller(std::string connection = "")
      : connection_(std::move(connection)), holder_{connection_} {}
  Caller(std::string connection, Holder holder)
      : connection_(std::move(connection)), holder_(std::move(holder)) {}
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  const std::string& connection() const { return connection_; }
  const Holder& holder() const { return holder_; }

  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  // Time of threads.
  void Use(std::chrono::nanoseconds time) { used_ += time.count(); }
  std::chrono::nanoseconds used() const {
    return std::chrono::nanoseconds(used_);
  }

 private:
  const std::string connection_;
  const Holder holder_;
  std::atomic<bool> cancelled_{false};
  std::atomic<int64_t> used_{0};
};

using CallerPtr = std::shared_ptr<Caller>;

}  // namespace attnbias
