// SPDX-License-Identifier: Apache-2.0
// Single elements of a tensor as numbers.
#ifndef ATTNBIAS_CORE_TENSOR_ELEMENT_H_
#define ATTNBIAS_CORE_TENSOR_ELEMENT_H_

#include <cstddef>
#include <cstdint>

#include "core/tensor/data_type.h"

namespace attnbias {

// The element at `data`, at any alignment; exact for every type.
double ReadElement(DataType type, const std::byte* data);

// The lowest finite number of a floating type.
double LowestOf(DataType type);

// Writes `count` copies of the element at `value` to `out`, which is aligned to
// the element's size.
void RepeatElement(DataType type, const std::byte* value, int64_t count,
                   std::byte* out);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_TENSOR_ELEMENT_H_
