// SPDX-License-Identifier: Apache-2.0
// Sinusoids at positions that are doubles.
#ifndef ATTNBIAS_CORE_ENCODING_SINUSOID_LISTED_SINUSOIDS_H_
#define ATTNBIAS_CORE_ENCODING_SINUSOID_LISTED_SINUSOIDS_H_

#include <cstddef>

#include "core/encoding/evaluator.h"
#include "core/encoding/sinusoid/sinusoid.h"
#include "core/tensor/data_type.h"
#include "core/tensor/positions.h"

namespace attnbias {

// The positions of one axis. Each has a BinarySum with the offset.
struct ListedAxis {
  RealPositionsPtr positions;
  size_t axis;
  double offset;
};

// Coordinate n stands for the n-th position. The rows have no offset.
EvaluatorPtr PrepareListed(SinusoidRows rows, ListedAxis axis, DataType type);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SINUSOID_LISTED_SINUSOIDS_H_
