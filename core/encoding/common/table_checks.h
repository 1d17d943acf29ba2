// SPDX-License-Identifier: Apache-2.0
// What encodings say of tables that are missing or not as they must be.
#ifndef ATTNBIAS_CORE_ENCODING_COMMON_TABLE_CHECKS_H_
#define ATTNBIAS_CORE_ENCODING_COMMON_TABLE_CHECKS_H_

#include <cstdint>
#include <initializer_list>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/encoding/common/limits.h"
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

// The same, and it must be set. `or_else` ends the message where it is not.
absl::Status CheckTable(absl::string_view field,
                        const std::optional<Table>& table,
                        std::initializer_list<TableAxis> axes,
                        absl::string_view or_else = "");

// What CheckTable says, in place of a table, of values that need none.
inline constexpr absl::string_view kOrBuckets = ", or values BUCKETS";

// A network computes with at most kMaxNetworkNumbers.
absl::Status CheckNetworkSize(absl::string_view field, const Table& table);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_COMMON_TABLE_CHECKS_H_
