// SPDX-License-Identifier: Apache-2.0
// Holds the learned tables of one request. Its message names each by digest.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attnbias/v1/tensor.pb.h"
#include "core/table/table.h"

namespace attnbias {

class Tables {
 public:
  struct Entry {
    Table table;
    // Path of the first field that refers to the table.
    std::string field;
  };

  // Returns the reference by which a message names a table.
  static v1::TableRef RefTo(const Table& table) {
    v1::TableRef ref;
    ref.set_sha256(table.sha256());
    ref.set_layout(v1::TABLE_LAYOUT_BUCKETS_HEADS);
    return ref;
  }

  v1::TableRef Add(const Table& table, std::string field = "") {
    v1::TableRef ref = RefTo(table);
    if (!Get(ref).has_value()) entries_.push_back({table, std::move(field)});
    return ref;
  }

  // Returns the table of a reference, or nothing if the reference is not set.
  std::optional<Table> Get(const v1::TableRef& ref) const {
    for (const Entry& entry : entries_) {
      if (entry.table.sha256() == ref.sha256()) return entry.table;
    }
    return std::nullopt;
  }

  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
};

}  // namespace attnbias
