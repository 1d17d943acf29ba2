// SPDX-License-Identifier: Apache-2.0
// NumPy's .npy files: versions 1 and 2, little-endian, C order.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnbias/v1/service.pb.h"
#include "core/file/regular_file.h"

namespace attnbias {

// F64, F32 or F16 of at most `max_bytes`. INVALID_ARGUMENT says what the file
// has and what was wanted.
absl::StatusOr<v1::InlineTable> ReadNpy(const RegularFile& file,
                                        int64_t max_bytes);

// What stands before the array's bytes. INVALID_ARGUMENT for BF16, which .npy
// cannot express.
absl::StatusOr<std::string> NpyHeader(const v1::TensorPart& part);

}  // namespace attnbias
