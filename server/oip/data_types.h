// SPDX-License-Identifier: Apache-2.0
// The Open Inference Protocol's names of element types.
#ifndef ATTNBIAS_SERVER_OIP_DATA_TYPES_H_
#define ATTNBIAS_SERVER_OIP_DATA_TYPES_H_

#include <array>
#include <string_view>

#include "core/tensor/data_type.h"

namespace attnbias {

// In the order of DataType.
inline constexpr std::array<std::string_view, kDataTypeNames.size()>
    kOipDataTypes = {"FP64", "FP32", "FP16", "BF16", "INT32"};

// Of lists of positions.
inline constexpr std::string_view kOipPositions = "INT64";

constexpr std::string_view OipNameOf(DataType type) {
  return kOipDataTypes[static_cast<size_t>(type) - 1];
}

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_OIP_DATA_TYPES_H_
