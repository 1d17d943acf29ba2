// SPDX-License-Identifier: Apache-2.0
// Lays rows of sines and cosines out as rotary tables: a part of cosines and a
// part of sines, each frequency once or twice in a row.
#ifndef ATTNBIAS_CORE_ENCODING_ABSOLUTE_ROTARY_EVALUATOR_H_
#define ATTNBIAS_CORE_ENCODING_ABSOLUTE_ROTARY_EVALUATOR_H_

#include <cstddef>
#include <cstdint>

#include "attnbias/v1/encodings.pb.h"
#include "core/encoding/evaluator.h"
#include "core/tensor/data_type.h"

namespace attnbias {

// Numbers of a pair in a row.
int64_t CopiesIn(v1::RotaryLayout layout);

// Lays the numbers of `count` pairs out as a row.
void WriteRotaryRow(v1::RotaryLayout layout, DataType type,
                    const std::byte* pairs, int64_t count, std::byte* out);

// Bounds what PrepareRotary's result takes beside its rows.
int64_t RotaryBytes(int64_t pairs);

// Fills rotary tables from rows [sines | cosines] of `pairs` pairs.
EvaluatorPtr PrepareRotary(EvaluatorPtr rows, int64_t pairs,
                           v1::RotaryLayout layout, DataType type);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_ABSOLUTE_ROTARY_EVALUATOR_H_
