// SPDX-License-Identifier: Apache-2.0
#include "core/table/read_table.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

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

struct HeldNumbers {
  std::string bytes;
  std::shared_ptr<const void> held;
};

absl::StatusOr<Table> Read(SafetensorsFile& file, const SafetensorsEntry& entry,
                           std::shared_ptr<const void> held) {
  if (!IsTable(entry)) {
    return Invalid(
        "got ", entry.dtype, " [", absl::StrJoin(entry.shape, ", "),
        "], want F64, F32, F16 or BF16 with one to three axes, none of "
        "length 0");
  }
  ATTNBIAS_ASSIGN_OR_RETURN(std::string read, file.Read(entry));
  const auto numbers = std::make_shared<const HeldNumbers>(
      HeldNumbers{std::move(read), std::move(held)});
  return Table::View(*DataTypeOf(entry.dtype), entry.shape, numbers->bytes,
                     numbers);
}

}  // namespace

bool IsTable(const SafetensorsEntry& entry) {
  return DataTypeOf(entry.dtype).has_value() && !entry.shape.empty() &&
         entry.shape.size() <= Table::kMaxAxes && entry.bytes() > 0;
}

absl::StatusOr<Table> ReadTable(SafetensorsFile& file,
                                const SafetensorsEntry& entry,
                                std::shared_ptr<const void> held) {
  absl::StatusOr<Table> table = Read(file, entry, std::move(held));
  if (table.ok()) return table;
  return Located(absl::StrCat(file.path(), ":", entry.name), table.status());
}

}  // namespace attnbias
