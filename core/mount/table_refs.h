// SPDX-License-Identifier: Apache-2.0
// Finds the tables that a request refers to.
#ifndef ATTNBIAS_CORE_MOUNT_TABLE_REFS_H_
#define ATTNBIAS_CORE_MOUNT_TABLE_REFS_H_

#include "absl/status/statusor.h"
#include "core/mount/registry.h"
#include "core/request/tables.h"
#include "google/protobuf/message.h"

namespace attnbias {

// Maximum bytes of numbers of a table inside a request.
inline constexpr int64_t kMaxInlineTableBytes = int64_t{2} << 20;

// Returns the tables of `request`, a TensorSpec or a LogitsSpec, from the
// request itself or from `mounted`, and replaces each TableRef in it by the
// digest of its table. Errors begin with the field's path and ": ".
//
// INVALID_ARGUMENT   a reference without a source, numbers that are not a
//                    table, a layout that the table cannot have
// NOT_FOUND          a name or digest that is not mounted
// PERMISSION_DENIED  a name that `mounted` may not have
absl::StatusOr<Tables> TakeTables(const TableSet& mounted,
                                  google::protobuf::Message& request);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_MOUNT_TABLE_REFS_H_
