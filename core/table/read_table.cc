// SPDX-License-Identifier: Apache-2.0
#include "core/table/read_table.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"

namespace attnbias {
namespace {

std::optional<DataType> DataTypeOf(std::string_view dtype) {
  for (const DataType type :
       {DataType::kF64, DataType::kF32, DataType::kF16, DataType::kBF16}) {
    if (dtype == NameOf(type)) return type;
  }
  return std::nullopt;
}

absl::StatusOr<Table> Read(SafetensorsFile& file,
                           const SafetensorsEntry& entry) {
  if (!IsTable(entry)) {
    return Invalid("got ", entry.dtype, " [", absl::StrJoin(entry.shape, ", "),
                   "], want one to three axes of F64, F32, F16 or BF16");
  }
  ATTNBIAS_ASSIGN_OR_RETURN(std::string read, file.Read(entry));
  const auto bytes = std::make_shared<const std::string>(std::move(read));
  return Table::View(*DataTypeOf(entry.dtype), entry.shape, *bytes, bytes);
}

}  // namespace

bool IsTable(const SafetensorsEntry& entry) {
  return DataTypeOf(entry.dtype).has_value() && !entry.shape.empty() &&
         entry.shape.size() <= Table::kMaxAxes && entry.bytes() > 0;
}

absl::StatusOr<Table> ReadTable(SafetensorsFile& file,
                                const SafetensorsEntry& entry) {
  absl::StatusOr<Table> table = Read(file, entry);
  if (table.ok()) return table;
  return Located(absl::StrCat(file.path(), ":", entry.name), table.status());
}

}  // namespace attnbias
