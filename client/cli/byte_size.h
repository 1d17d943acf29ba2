// SPDX-License-Identifier: Apache-2.0
// Sizes of tensors, checked before memory is touched.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnbias/v1/service.pb.h"

namespace attnbias {

// Bytes of a tensor; INVALID_ARGUMENT for a length below 0 or a size that does
// not fit in 63 bits.
absl::StatusOr<int64_t> ByteSize(
    v1::DataType type, const google::protobuf::RepeatedField<int64_t>& shape);

// INVALID_ARGUMENT if a tensor to be sent is over the limit.
absl::Status CheckAtMost(int64_t bytes, int64_t max_bytes);

}  // namespace attnbias
