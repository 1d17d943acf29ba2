// SPDX-License-Identifier: Apache-2.0
// Tables out of .safetensors files.
#ifndef ATTNBIAS_CORE_TABLE_READ_TABLE_H_
#define ATTNBIAS_CORE_TABLE_READ_TABLE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/safetensors/safetensors.h"
#include "core/table/table.h"

namespace attnbias {

// Whether `entry` is of a type and of axes that a Table may have.
bool IsTable(const SafetensorsEntry& entry);

// INVALID_ARGUMENT, its message beginning with path and name, unless `entry`,
// one of the file's though perhaps with other axes for as many numbers, is a
// table. The table keeps `held` as long as it has the numbers.
absl::StatusOr<Table> ReadTable(SafetensorsFile& file,
                                const SafetensorsEntry& entry,
                                std::shared_ptr<const void> held = nullptr);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_TABLE_READ_TABLE_H_
