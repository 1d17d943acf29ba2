// SPDX-License-Identifier: Apache-2.0
// Pages of the mounted tables.
#ifndef ATTNBIAS_SERVER_LIST_TABLES_H_
#define ATTNBIAS_SERVER_LIST_TABLES_H_

#include "absl/status/status.h"
#include "attnbias/v1/service.pb.h"
#include "core/mount/registry.h"

namespace attnbias {

// One page of the mounted tables. INVALID_ARGUMENT, naming the field, for a
// size that is not allowed or a token that no answer held.
absl::Status ListTables(const v1::ListTablesRequest& request,
                        const TableSet& tables,
                        v1::ListTablesResponse* response);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_LIST_TABLES_H_
