// SPDX-License-Identifier: Apache-2.0
// What encodings say of tables that are missing or not as they must be.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/table/table.h"

namespace attnbias {

// One axis of a table: how long it must be, and of what it has so many.
struct TableAxis {
  int64_t length;
  absl::string_view name;
};

// `table` must have exactly these axes: {{32, "buckets"}, {8, "heads"}}.
absl::Status CheckShape(absl::string_view field, const Table& table,
                        std::initializer_list<TableAxis> axes);

// The same of a table that biases need, and values BUCKETS do not.
absl::Status CheckTable(absl::string_view field,
                        const std::optional<Table>& table,
                        std::initializer_list<TableAxis> axes);

// A network computes with at most kMaxNetworkNumbers.
absl::Status CheckNetworkSize(absl::string_view field, const Table& table);

}  // namespace attnbias
