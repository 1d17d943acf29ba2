// SPDX-License-Identifier: Apache-2.0
// The contract's TableRef to and from core's tables.
#ifndef ATTNBIAS_SERVER_CODEC_TABLE_CODEC_H_
#define ATTNBIAS_SERVER_CODEC_TABLE_CODEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "attnbias/v1/tensor.pb.h"
#include "core/mount/registry.h"
#include "core/table/table.h"

namespace attnbias {

// The table that `ref` names; `tables` are those that are mounted. `path` is
// the field it stands in, for messages.
absl::StatusOr<Table> DecodeTable(const v1::TableRef& ref,
                                  const std::string& path,
                                  const TableSet& tables);

// The table by its digest.
void EncodeTable(const Table& table, v1::TableRef* ref);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_CODEC_TABLE_CODEC_H_
