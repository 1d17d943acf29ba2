// SPDX-License-Identifier: Apache-2.0
// Element types of the tensors we serve, and their names.
#ifndef ATTNBIAS_CORE_TENSOR_DATA_TYPE_H_
#define ATTNBIAS_CORE_TENSOR_DATA_TYPE_H_

#include <cstdint>
#include <string_view>

namespace attnbias {

// The numbers are those of the wire's DataType and enter fingerprints: they
// never change.
enum class DataType : uint8_t { kF64 = 1, kF32, kF16, kBF16, kI32 };

constexpr int64_t SizeOf(DataType type) {
  switch (type) {
    case DataType::kF64:
      return 8;
    case DataType::kF32:
    case DataType::kI32:
      return 4;
    case DataType::kF16:
    case DataType::kBF16:
      return 2;
  }
  return 0;
}

constexpr std::string_view NameOf(DataType type) {
  switch (type) {
    case DataType::kF64:
      return "F64";
    case DataType::kF32:
      return "F32";
    case DataType::kF16:
      return "F16";
    case DataType::kBF16:
      return "BF16";
    case DataType::kI32:
      return "I32";
  }
  return "";
}

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_TENSOR_DATA_TYPE_H_
