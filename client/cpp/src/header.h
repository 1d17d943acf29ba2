// SPDX-License-Identifier: Apache-2.0
// Checks a header before it is used to allocate memory or form a pointer.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "attnbias/v1/service.pb.h"

namespace attnbias {

// Returns DATA_LOSS if the header contradicts itself, UNIMPLEMENTED if a part has an element type
// or a form that this client does not know, and RESOURCE_EXHAUSTED if the payload exceeds
// `max_tensor_bytes`.
absl::Status CheckHeader(const v1::TensorHeader& header, int64_t max_tensor_bytes);

// Returns DATA_LOSS if the header of a resumed stream differs from the first one.
absl::Status CheckSame(const v1::TensorHeader& got, const v1::TensorHeader& want);

// Returns the numbers of queries and keys in a resolved request's window; 0 if it has none.
std::pair<int64_t, int64_t> QueriesAndKeys(const v1::PairExtent& pair);

}  // namespace attnbias
