// SPDX-License-Identifier: Apache-2.0
// Tensor files: reads learned tables and writes fetched tensors.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attnbias/tensor.h"
#include "attnbias/v1/service.pb.h"

namespace attnbias {

// Reads a tensor from "FILE.safetensors:TENSOR", "FILE.npy" or a "FILE.safetensors" that contains
// only one. The elements are F64, F32, F16 or, in .safetensors, BF16; the tensor takes at most the
// 2 MiB that a request may carry.
absl::StatusOr<v1::InlineTable> ReadTableFile(const std::string& name);

// Output name that selects raw bytes on standard output.
inline constexpr absl::string_view kStandardOutput = "-";

// Returns the bytes of `part`, or of all parts if `part` is empty.
absl::StatusOr<absl::Span<const std::byte>> BareBytes(const Tensor& tensor,
                                                      const std::string& part);

// Writes `part` (if `part` is empty, the only part) to a .npy file, or all parts to a .safetensors
// file; writes the whole file or nothing.
absl::Status WriteTensorFile(const Tensor& tensor, const std::string& path,
                             const std::string& part = "");

}  // namespace attnbias
