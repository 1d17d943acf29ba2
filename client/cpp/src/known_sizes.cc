// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/known_sizes.h"

#include <functional>
#include <string>

namespace attnbias {
namespace {

constexpr size_t kMostPayloads = 1024;
// A larger spec is better asked for as a stream than remembered.
constexpr size_t kMostSpecBytes = 64 << 10;
// Of a GetTensorResponse: 4 MiB, less room for its header (docs/protocol.md).
constexpr int64_t kMessageBytes = (4 << 20) - (64 << 10);

// Two specs of one key cost a refused message, after which a stream is tried.
size_t KeyOf(const v1::TensorSpec& spec) {
  return std::hash<std::string>()(spec.SerializeAsString());
}

}  // namespace

void KnownSizes::Learn(const v1::TensorSpec& spec, int64_t bytes) {
  if (spec.ByteSizeLong() > kMostSpecBytes) return;
  const size_t key = KeyOf(spec);
  const std::lock_guard lock(mutex_);
  if (!bytes_.insert_or_assign(key, bytes).second) return;
  oldest_first_.push_back(key);
  if (oldest_first_.size() <= kMostPayloads) return;
  bytes_.erase(oldest_first_.front());
  oldest_first_.pop_front();
}

bool KnownSizes::FitsMessage(const v1::TensorSpec& spec) const {
  if (spec.ByteSizeLong() > kMostSpecBytes) return false;
  const size_t key = KeyOf(spec);
  const std::lock_guard lock(mutex_);
  const auto found = bytes_.find(key);
  return !fit_none_ && found != bytes_.end() && found->second <= kMessageBytes;
}

void KnownSizes::FitNone() {
  const std::lock_guard lock(mutex_);
  fit_none_ = true;
}

}  // namespace attnbias
