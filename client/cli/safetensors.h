// SPDX-License-Identifier: Apache-2.0
// What the command line reads out of .safetensors files.
#ifndef ATTNBIAS_CLIENT_CLI_SAFETENSORS_H_
#define ATTNBIAS_CLIENT_CLI_SAFETENSORS_H_

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

}  // namespace attnbias

#endif  // ATTNBIAS_CLIENT_CLI_SAFETENSORS_H_
