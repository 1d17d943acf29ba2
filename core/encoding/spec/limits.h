// SPDX-License-Identifier: Apache-2.0
// Bounds of the contract that several specs share.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_LIMITS_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_LIMITS_H_

#include <cstdint>

#include "core/tensor/range.h"

namespace attnbias {

inline constexpr int64_t kMaxNumHeads = 65536;
// Columns of a table or a vector.
inline constexpr int64_t kMaxDim = 65536;
// Of a geometric progression of wavelengths.
inline constexpr double kMaxBase = 1e18;
// One side of a window of tokens.
inline constexpr int64_t kMaxWindowSide = 256;
// Axes of position.
inline constexpr int64_t kMaxAxes = 4;
// Numbers in a table whose values are computed with as doubles.
inline constexpr int64_t kMaxNetworkNumbers = int64_t{1} << 22;
// Units of a network's hidden layer.
inline constexpr int64_t kMaxHidden = 65536;
// Relative positions with a row of a table on one side: two sides, and the 0
// between them, still count in 32 bits.
inline constexpr int64_t kMaxReach = (int64_t{1} << 30) - 1;
// Every difference of two positions that the contract allows.
inline constexpr Range kRelativePositions = {-(int64_t{1} << 42),
                                             int64_t{1} << 42};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_LIMITS_H_
