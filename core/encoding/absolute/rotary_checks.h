// SPDX-License-Identifier: Apache-2.0
// What is allowed of rotary positions.
#ifndef ATTNBIAS_CORE_ENCODING_ABSOLUTE_ROTARY_CHECKS_H_
#define ATTNBIAS_CORE_ENCODING_ABSOLUTE_ROTARY_CHECKS_H_

#include "absl/status/status.h"
#include "core/encoding/spec/rotary.h"
namespace attnbias {

// INVALID_ARGUMENT: a field's value, or one that goes with no other.
absl::Status CheckRotary(const RotarySpec& spec);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_ABSOLUTE_ROTARY_CHECKS_H_
