// SPDX-License-Identifier: Apache-2.0
// Lays rows of sines and cosines out as rotary tables: a part of cosines and a
// part of sines, each frequency once or twice in a row. Of xPos (Sun et al.
// 2022) a third part has the decay, which queries are multiplied by and keys
// divided by.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attnbias/v1/encodings.pb.h"
#include "core/encoding/encoding.h"
#include "core/tensor/data_type.h"
#include "core/tensor/range.h"

namespace attnbias {

// Numbers of a pair in a row.
int64_t CopiesIn(v1::RotaryLayout layout);

// Bounds what PrepareRotary's result takes beside its rows.
int64_t RotaryBytes(int64_t pairs);

// Fills rotary tables from rows [sines | cosines] of `pairs` pairs.
EvaluatorPtr PrepareRotary(EvaluatorPtr rows, int64_t pairs,
                           v1::RotaryLayout layout, DataType type);

// Returns the positions at which double-doubles hold every decay.
Range DecayDomain(const v1::Decay& decay);

// Bounds what PrepareDecay's result takes in addition to `rotary`, as an
// Encoding's evaluator_bytes do.
int64_t DecayBytes(const v1::Rotary& spec);

// Adds the decay of `spec` to an evaluator of cosines and sines.
EvaluatorPtr PrepareDecay(const v1::Rotary& spec, const NumberFormat& format,
                          EvaluatorPtr rotary);

}  // namespace attnbias
