// SPDX-License-Identifier: Apache-2.0
// Derives from a request what its answer must be, and compares the two before
// memory is taken or a pointer formed by a header.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "attnbias/v1/service.pb.h"

namespace attnbias {

// Checks a header. DATA_LOSS if the header contradicts itself or the request,
// UNIMPLEMENTED if its elements are of an unknown type, RESOURCE_EXHAUSTED if
// the payload exceeds `max_tensor_bytes`.
absl::Status CheckHeader(const v1::TensorHeader& header, const v1::TensorSpec& spec,
                         int64_t max_tensor_bytes);

// Checks a header against a request. DATA_LOSS if the header describes another
// tensor, or if a fingerprint is malformed. The contract's own options
// (options.proto) describe each encoding, so none is named here. A request
// without an encoding, which servers refuse, determines the fingerprints alone.
absl::Status CheckAnswer(const v1::TensorHeader& header, const v1::TensorSpec& spec);

// Returns DATA_LOSS if the header of a resumed stream differs from the first
// one.
absl::Status CheckSame(const v1::TensorHeader& got, const v1::TensorHeader& want);

}  // namespace attnbias
