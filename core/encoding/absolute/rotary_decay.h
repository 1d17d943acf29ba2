// SPDX-License-Identifier: Apache-2.0
// xPos (Sun et al. 2022): the decay that queries are multiplied by and keys
// divided by, as a third part of rotary tables.
#ifndef ATTNBIAS_CORE_ENCODING_ABSOLUTE_ROTARY_DECAY_H_
#define ATTNBIAS_CORE_ENCODING_ABSOLUTE_ROTARY_DECAY_H_

#include <cstdint>

#include "attnbias/v1/encodings.pb.h"
#include "core/encoding/evaluator.h"
#include "core/tensor/data_type.h"
#include "core/tensor/range.h"

namespace attnbias {

// Returns the positions at which double-doubles hold every decay.
Range DecayDomain(const v1::Decay& decay);

// Bounds what PrepareDecay's result takes in addition to `rotary`, as an
// Encoding's evaluator_bytes do.
int64_t DecayBytes(const v1::Rotary& spec);

// Adds the decay of `spec` to an evaluator of cosines and sines.
EvaluatorPtr PrepareDecay(const v1::Rotary& spec, const NumberFormat& format,
                          EvaluatorPtr rotary);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_ABSOLUTE_ROTARY_DECAY_H_
