// SPDX-License-Identifier: Apache-2.0
// What stands before a payload in a .safetensors file. For this project's own
// programs.
#ifndef ATTNBIAS_CLIENT_CPP_INCLUDE_ATTNBIAS_INTERNAL_SAFETENSORS_HEAD_H_
#define ATTNBIAS_CLIENT_CPP_INCLUDE_ATTNBIAS_INTERNAL_SAFETENSORS_HEAD_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "attnbias/v1/service.pb.h"

namespace attnbias::internal {

// The parts of `header` become tensors of their names; docs/protocol.md has the
// metadata, to which `more` are added. `mask` is said of diagonals; without one
// readers take that of the resolved spec. The payload then begins at a multiple
// of 64 bytes.
absl::StatusOr<std::string> SafetensorsHead(
    const v1::TensorHeader& header, const v1::Mask& mask = {},
    const std::map<std::string, std::string>& more = {});

}  // namespace attnbias::internal

#endif  // ATTNBIAS_CLIENT_CPP_INCLUDE_ATTNBIAS_INTERNAL_SAFETENSORS_HEAD_H_
