// SPDX-License-Identifier: Apache-2.0
// Mounts the learned tables that the flags name, and mounts them again when their files change.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/mount/registry.h"

namespace attnbias {

// Values of --tables, --table and --checkpoint.
struct TableSources {
  std::string folder;
  std::vector<std::string> tables;
  std::vector<std::string> checkpoints;

  bool empty() const { return folder.empty() && tables.empty() && checkpoints.empty(); }
};

// Load and Refresh are called by one thread at a time.
class TableMounts {
 public:
  // `registry` outlives this object. `max_bytes` and `hold` are passed to TableSetBuilder.
  TableMounts(TableSources sources, int64_t max_bytes, TableRegistry* registry,
              TableSetBuilder::Hold hold = nullptr);

  // Reads every table. An error names the flag and the file, and leaves the mounted tables
  // unchanged.
  absl::Status Load();

  // Makes the next Refresh load even unchanged files.
  void Invalidate() { stale_ = true; }
  // If a file has changed since the last Load, loads again and logs the outcome.
  void Refresh();

  // Returns whether the last Load failed.
  bool failed() const { return failed_; }

 private:
  absl::StatusOr<TableSetPtr> Read() const;
  absl::Status AddFolder(TableSetBuilder& builder) const;
  std::string Stamp() const;

  const TableSources sources_;
  const int64_t max_bytes_;
  const TableSetBuilder::Hold hold_;
  TableRegistry& registry_;
  std::atomic<bool> failed_{false};
  // State of the files at the last Load.
  std::string stamp_;
  std::string last_error_;
  std::atomic<bool> stale_{false};
};

}  // namespace attnbias
