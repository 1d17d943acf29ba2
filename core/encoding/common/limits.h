// SPDX-License-Identifier: Apache-2.0
// Bounds of the contract that several encodings share.
#ifndef ATTNBIAS_CORE_ENCODING_COMMON_LIMITS_H_
#define ATTNBIAS_CORE_ENCODING_COMMON_LIMITS_H_

#include <cstdint>

#include "core/tensor/range.h"

namespace attnbias {

inline constexpr int64_t kMaxNumHeads = 65536;
// Numbers in a table whose values are computed with as doubles.
inline constexpr int64_t kMaxNetworkNumbers = int64_t{1} << 22;
// Units of a network's hidden layer.
inline constexpr int64_t kMaxHidden = 65536;
// Every difference of two positions that the contract allows.
inline constexpr Range kRelativePositions = {-(int64_t{1} << 42),
                                             int64_t{1} << 42};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_COMMON_LIMITS_H_
