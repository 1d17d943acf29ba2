// SPDX-License-Identifier: Apache-2.0
#include "client/cli/safetensors.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/byte_size.h"

namespace attnbias {
namespace {

absl::StatusOr<v1::DataType> DataTypeOf(const std::string& dtype) {
  if (dtype == "F64") return v1::DATA_TYPE_F64;
  if (dtype == "F32") return v1::DATA_TYPE_F32;
  if (dtype == "F16") return v1::DATA_TYPE_F16;
  if (dtype == "BF16") return v1::DATA_TYPE_BF16;
  return absl::InvalidArgumentError(
      absl::StrCat("dtype: got \"", dtype, "\", want F64, F32, F16 or BF16"));
}

absl::StatusOr<SafetensorsEntry> FindTensor(const SafetensorsFile& file,
                                            const std::string& name) {
  if (const SafetensorsEntry* entry = file.FindOrOnly(name)) return *entry;
  const auto add_name = [&](std::string* out, const SafetensorsEntry& entry) {
    absl::StrAppend(out, name.empty() ? ":" : "", entry.name);
  };
  const std::string names = absl::StrJoin(file.entries(), ", ", add_name);
  return absl::InvalidArgumentError(
      name.empty()
          ? absl::StrCat("got no tensor, want one after the name: ", names)
          : absl::StrCat("tensor: got \"", name, "\", want one of ", names));
}

}  // namespace

absl::StatusOr<v1::InlineTable> ReadSafetensors(SafetensorsFile& file,
                                                const std::string& name,
                                                int64_t max_bytes) {
  const auto tensor = FindTensor(file, name);
  if (!tensor.ok()) return tensor.status();
  const auto type = DataTypeOf(tensor->dtype);
  if (!type.ok()) return type.status();
  if (absl::Status status = CheckAtMost(tensor->bytes(), max_bytes);
      !status.ok()) {
    return status;
  }
  auto data = file.Read(*tensor);
  if (!data.ok()) return data.status();
  v1::InlineTable table;
  table.set_data_type(*type);
  table.mutable_shape()->Add(tensor->shape.begin(), tensor->shape.end());
  table.set_data(*std::move(data));
  return table;
}

}  // namespace attnbias
