// SPDX-License-Identifier: Apache-2.0
// Checks of tables that are missing or have a wrong shape.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/table/table.h"

namespace attnbias {

// One axis of a table: its required length, and the name of its entries.
struct TableAxis {
  int64_t length;
  absl::string_view name;
};

// Checks that `table` has exactly these axes: {{32, "buckets"}, {8, "heads"}}.
absl::Status CheckShape(absl::string_view field, const Table& table,
                        std::initializer_list<TableAxis> axes);

// The same for a table that biases need and values BUCKETS do not.
absl::Status CheckTable(absl::string_view field, const std::optional<Table>& table,
                        std::initializer_list<TableAxis> axes);

// Checks that `table` has at most kMaxNetworkNumbers.
absl::Status CheckNetworkSize(absl::string_view field, const Table& table);

}  // namespace attnbias
