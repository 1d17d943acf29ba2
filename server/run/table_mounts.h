// SPDX-License-Identifier: Apache-2.0
// Mounts the learned tables that the flags name, and mounts them anew when their files change.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/mutex.h"
#include "core/mount/registry.h"

namespace attnbias {

// The values of --tables, --table and --checkpoint.
struct TableSources {
  std::string folder;
  std::vector<std::string> tables;
  std::vector<std::string> checkpoints;

  bool empty() const { return folder.empty() && tables.empty() && checkpoints.empty(); }
};

// Safe for any number of threads.
class TableMounts {
 public:
  // `registry` outlives this object. `max_bytes` bounds all tables together, `hold` takes their
  // memory, both as TableSetBuilder has them.
  TableMounts(TableSources sources, int64_t max_bytes, TableRegistry* registry,
              TableSetBuilder::Hold hold = nullptr);

  // Reads every table. On an error, which names flag and file, those mounted before stay.
  absl::Status Load();

  // Makes the next Refresh load whatever the files look like.
  void Invalidate();
  // Load, with a line in the log about how it went, unless every file is as the last Load found it.
  void Refresh();

  // Whether the last Load failed.
  bool failed() const { return failed_; }

 private:
  absl::StatusOr<TableSetPtr> Read() const;
  absl::Status AddFolder(TableSetBuilder& builder) const;
  absl::Status LoadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Stamp() const;

  const TableSources sources_;
  const int64_t max_bytes_;
  const TableSetBuilder::Hold hold_;
  TableRegistry& registry_;
  std::atomic<bool> failed_{false};
  Mutex mutex_;
  // Of the files at the last Load, and what it said.
  std::string stamp_ ABSL_GUARDED_BY(mutex_);
  std::string last_error_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> stale_{false};
};

}  // namespace attnbias
