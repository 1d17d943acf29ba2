// SPDX-License-Identifier: Apache-2.0
// What is allowed of TUPE.
#ifndef ATTNBIAS_CORE_ENCODING_TUPE_TUPE_CHECKS_H_
#define ATTNBIAS_CORE_ENCODING_TUPE_TUPE_CHECKS_H_

#include "absl/status/status.h"
#include "core/encoding/spec/t5.h"
#include "core/encoding/spec/tupe.h"

namespace attnbias {

// INVALID_ARGUMENT: a field's value, or one that goes with no other.
absl::Status CheckTupe(const TupeSpec& spec);

// Whether there is what biases need of the relative term.
absl::Status CheckRelativeTable(const TupeSpec& spec);

// The relative term's buckets.
T5Spec BucketsOf(const TupeSpec& spec);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_TUPE_TUPE_CHECKS_H_
