// SPDX-License-Identifier: Apache-2.0
// Mounts learned tables under names, and resolves requests' references to them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attnbias/v1/encodings.pb.h"
#include "core/base/mutex.h"
#include "core/request/rules.h"
#include "core/safetensors/safetensors.h"
#include "core/table/table.h"
#include "google/protobuf/message.h"

namespace attnbias {

struct MountedTable {
  std::string name;
  // FILE:TENSOR, without the file's folder; escaped with absl::CEscape.
  std::string source;
  Table table;
  // Spec of an encoding that uses the table as the checkpoint's model does, if known. The spec
  // names the table by digest.
  std::optional<v1::TensorSpec> spec;
};

// Immutable; names are unique. Thread-safe.
class TableSet {
 public:
  // Returns the tables of this set whose names begin with one of `prefixes`. All callers that pass
  // the same prefixes get the same set.
  std::shared_ptr<const TableSet> Under(const std::vector<std::string>& prefixes) const;

  // Returns whether a name matches the prefixes for which this set was made.
  bool MayHave(std::string_view name) const;

  // In ascending order of name.
  absl::Span<const MountedTable> tables() const { return tables_; }

  const MountedTable* Find(std::string_view name) const;

  // Returns the table with this digest, which may be the transpose of a mounted one.
  std::optional<Table> FindDigest(const std::string& sha256) const;

 private:
  friend class TableSetBuilder;

  // Only a few different prefix lists are in use at a time.
  static constexpr size_t kMaxParts = 64;

  void Append(const MountedTable& mounted);

  std::vector<std::string> prefixes_ = {""};
  std::vector<MountedTable> tables_;
  absl::flat_hash_map<std::string, Table> by_digest_;

  mutable Mutex mutex_;
  mutable absl::flat_hash_map<std::vector<std::string>, std::shared_ptr<const TableSet>> parts_
      ABSL_GUARDED_BY(mutex_);
};
using TableSetPtr = std::shared_ptr<const TableSet>;

// Reads tables into a set.
class TableSetBuilder {
 public:
  static constexpr size_t kMaxNameBytes = 512;

  // Reserves `bytes` of memory, which the result holds.
  using Hold = std::function<absl::StatusOr<std::shared_ptr<const void>>(int64_t bytes)>;

  // `max_bytes` bounds the total size of all tables' values; `hold`, if any, reserves memory for
  // each table before it is read.
  explicit TableSetBuilder(int64_t max_bytes, Hold hold = nullptr)
      : max_bytes_(max_bytes), hold_(std::move(hold)) {}

  // Reads a tensor from `file`. The result lives until Build. Returns INVALID_ARGUMENT, with the
  // location, for a name that no request could use, an entry that is not a table, or too many
  // values. Also returns errors from `hold`.
  absl::StatusOr<MountedTable*> Add(const std::string& name, SafetensorsFile& file,
                                    const SafetensorsEntry& entry);

  // Returns INVALID_ARGUMENT if two tables have the same name.
  absl::StatusOr<TableSetPtr> Build() &&;

 private:
  const int64_t max_bytes_;
  const Hold hold_;
  int64_t bytes_ = 0;
  std::deque<MountedTable> tables_;
};

// The set in use. Thread-safe.
class TableRegistry {
 public:
  // Never null; the result keeps its tables alive.
  TableSetPtr Get() const {
    MutexLock lock(mutex_);
    return tables_;
  }
  void Replace(TableSetPtr tables) {
    MutexLock lock(mutex_);
    tables_.swap(tables);
  }

 private:
  mutable Mutex mutex_;
  TableSetPtr tables_ ABSL_GUARDED_BY(mutex_) = std::make_shared<const TableSet>();
};

// Maximum size in bytes of a table's values inside a request.
inline constexpr int64_t kMaxInlineTableBytes = int64_t{2} << 20;

// Returns the tables that `request`, a TensorSpec or a LogitsSpec, refers to, from the request
// itself or from `mounted`, and replaces each TableRef in it with its table's digest. Errors begin
// with the field's path and ": ".
//
// INVALID_ARGUMENT   a reference without a source, values that are not a table, or a layout that
//                    the table cannot have
// NOT_FOUND          a name or digest that is not mounted
// PERMISSION_DENIED  a name outside the prefixes of `mounted`
absl::StatusOr<Tables> TakeTables(const TableSet& mounted, google::protobuf::Message& request);

// Adds the tables of the checkpoint in `folder`, which holds config.json and either
// model.safetensors or model.safetensors.index.json with its shards. Their names begin with
// "NAME/".
//
// INVALID_ARGUMENT  an unknown model type (the message lists the known ones), no known table, a
//                   configuration that its tensors contradict, or a damaged file
// NOT_FOUND         a missing file
absl::Status AddCheckpoint(const std::string& name, const std::string& folder,
                           TableSetBuilder& builder);

}  // namespace attnbias
