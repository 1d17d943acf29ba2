// SPDX-License-Identifier: Apache-2.0
// Tensor files: reads learned tables, writes fetched tensors.
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

// Reads "FILE.safetensors:TENSOR", "FILE.safetensors" with one tensor in it, or
// "FILE.npy": F64, F32, F16 or, in .safetensors, BF16; at most the 2 MiB that a
// request may carry.
absl::StatusOr<v1::InlineTable> ReadTableFile(const std::string& name);

// Output name that selects raw bytes on standard output.
inline constexpr absl::string_view kStandardOutput = "-";

// Returns the bytes of `part`, or of all parts if `part` is empty.
absl::StatusOr<absl::Span<const std::byte>> BareBytes(const Tensor& tensor,
                                                      const std::string& part);

// Writes a .npy file with `part`, or with the only part if `part` is empty, or a .safetensors file
// with all parts; all or nothing.
absl::Status WriteTensorFile(const Tensor& tensor, const std::string& path,
                             const std::string& part = "");

}  // namespace attnbias
