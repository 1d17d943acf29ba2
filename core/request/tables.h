// SPDX-License-Identifier: Apache-2.0
// Holds the learned tables of one request. Its message names each by digest.
#ifndef ATTNBIAS_CORE_REQUEST_TABLES_H_
#define ATTNBIAS_CORE_REQUEST_TABLES_H_

#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "attnbias/v1/tensor.pb.h"
#include "core/table/table.h"

namespace attnbias {

class Tables {
 public:
  struct Entry {
    Table table;
    // Path of the field that has it, or of one of several.
    std::string field;
  };

  // Returns the reference by which a message names a table.
  static v1::TableRef RefTo(const Table& table) {
    v1::TableRef ref;
    ref.set_sha256(table.sha256());
    ref.set_layout(v1::TABLE_LAYOUT_BUCKETS_HEADS);
    return ref;
  }

  v1::TableRef Add(Table table, std::string field = "") {
    v1::TableRef ref = RefTo(table);
    by_digest_.try_emplace(ref.sha256(),
                           Entry{std::move(table), std::move(field)});
    return ref;
  }

  // Returns nothing for a reference that is not set.
  std::optional<Table> Get(const v1::TableRef& ref) const {
    if (ref.sha256().empty()) return std::nullopt;
    return by_digest_.at(ref.sha256()).table;
  }

  auto begin() const { return by_digest_.begin(); }
  auto end() const { return by_digest_.end(); }

 private:
  absl::flat_hash_map<std::string, Entry> by_digest_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_REQUEST_TABLES_H_
