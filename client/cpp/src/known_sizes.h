// SPDX-License-Identifier: Apache-2.0
// The sizes of payloads that a client has come to know, by their specs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "attnbias/v1/service.pb.h"

namespace attnbias {

// The last 1024 learnt. For any thread.
class KnownSizes {
 public:
  // Hears how many bytes a payload has.
  void Learn(const v1::TensorSpec& spec, int64_t bytes);

  // Whether a payload is known to fit one message.
  bool FitsMessage(const v1::TensorSpec& spec) const;

  // Hears that this client gets nothing in one message.
  void FitNone();

 private:
  mutable std::mutex mutex_;
  std::unordered_map<size_t, int64_t> bytes_;  // by hashes of specs
  std::deque<size_t> oldest_first_;
  bool fit_none_ = false;
};

}  // namespace attnbias
