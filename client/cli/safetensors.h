// SPDX-License-Identifier: Apache-2.0
// The .safetensors files that the command line reads and writes.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "attnbias/v1/service.pb.h"
#include "core/safetensors/safetensors.h"

namespace attnbias {

// The tensor `name` (if empty, the only one) of type F64, F32, F16 or BF16 and
// at most `max_bytes`. INVALID_ARGUMENT says what the file has and what was
// wanted.
absl::StatusOr<v1::InlineTable> ReadSafetensors(SafetensorsFile& file,
                                                const std::string& name,
                                                int64_t max_bytes);

// What stands before the payload in the file of a tensor: the parts of `header`
// become tensors of their names; docs/protocol.md has the metadata. The payload
// then begins at a multiple of 64 bytes.
absl::StatusOr<std::string> SafetensorsHead(const v1::TensorHeader& header);

}  // namespace attnbias
