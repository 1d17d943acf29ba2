// SPDX-License-Identifier: Apache-2.0
// What a header must be before memory is taken or a pointer formed by it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "attnbias/v1/service.pb.h"

namespace attnbias {

// DATA_LOSS if the header contradicts itself or is not an answer to the
// request, UNIMPLEMENTED if it has elements that this client does not know,
// RESOURCE_EXHAUSTED if its payload is over `max_tensor_bytes`.
absl::Status CheckHeader(const v1::TensorHeader& header,
                         const v1::TensorSpec& spec, int64_t max_tensor_bytes);

// DATA_LOSS if the header of a stream that goes on is not that of its
// beginning.
absl::Status CheckSame(const v1::TensorHeader& got,
                       const v1::TensorHeader& want);

}  // namespace attnbias
