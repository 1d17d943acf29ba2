// SPDX-License-Identifier: Apache-2.0
// Remembers the plans for recent small requests, keyed by the requests' bytes.
//
// A small response from the cache costs little, so parsing, checking, naming and describing its
// request would account for most of the cost of the call. Without the memo, a server answers only
// 65% as many small calls. A plan depends only on the request and the mounted tables, so it is
// valid while these stay mounted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "core/base/mutex.h"
#include "core/engine/plan.h"
#include "core/mount/registry.h"
#include "core/tensor/positions.h"

namespace attnbias {

// Range of a payload that a call requests.
struct StreamWindow {
  // Bytes of the payload; empty if only the header is requested.
  Range bytes;
  int64_t chunk_bytes = 0;
};

struct PlannedRequest {
  PlanPtr plan;
  // A StreamTensorResponse with the header and checksums; see SerializeHeader.
  std::string header;
  StreamWindow window;
};
using PlannedRequestPtr = std::shared_ptr<const PlannedRequest>;

// Thread-safe.
class PlanMemo {
 public:
  // Enough for a request with a bias's learned table: T5's largest is 8 KiB, Swin's 21 KiB.
  static constexpr size_t kMaxRememberedBytes = size_t{64} << 10;
  static constexpr size_t kMaxRequests = 1024;
  // Maximum total size in bytes of the requests and headers. Their plans take a few times as much.
  static constexpr size_t kMaxBytes = size_t{4} << 20;

  // Returns null if no plan is stored for the request with these tables.
  PlannedRequestPtr Find(const std::string& request, const TableSetPtr& tables);
  // Does not store a request if it or its header exceeds kMaxRememberedBytes, since a header
  // repeats the parts of the request that make a plan large. Drops the plans of unmounted tables,
  // which keep the tables' values in memory, and drops all plans when the memo is full.
  void Insert(std::string request, const TableSetPtr& tables, PlannedRequestPtr planned);

 private:
  using WeakTables = std::weak_ptr<const TableSet>;
  struct Known {
    absl::flat_hash_map<std::string, PlannedRequestPtr> requests;
    // Bytes of these requests and their headers.
    size_t bytes = 0;
  };

  Mutex mutex_;
  // Each caller sees one of a few sets: all tables, or those that a policy grants.
  std::map<WeakTables, Known, std::owner_less<>> by_tables_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnbias
