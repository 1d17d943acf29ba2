// SPDX-License-Identifier: Apache-2.0
// Tensor files by name: a learned table in, a fetched tensor out.
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

// "FILE.safetensors:TENSOR", "FILE.safetensors" with one tensor in it, or
// "FILE.npy"; at most the 2 MiB that a request may carry.
absl::StatusOr<v1::InlineTable> ReadTableFile(const std::string& name);

// The name of an output that is the tensor's bare bytes on the standard output.
inline constexpr absl::string_view kStandardOutput = "-";

// INVALID_ARGUMENT if a tensor of `type` cannot go to a file of this name: to
// be known before anything is fetched.
absl::Status CheckOutput(const std::string& path, v1::DataType type);

// Of `part`, or of all parts if that is empty.
absl::StatusOr<absl::Span<const std::byte>> BareBytes(const Tensor& tensor,
                                                      const std::string& part);

// A .npy file with `part`, or the only one if that is empty, or a .safetensors
// file with all; all or nothing.
absl::Status WriteTensorFile(const Tensor& tensor, const std::string& path,
                             const std::string& part = "");

}  // namespace attnbias
