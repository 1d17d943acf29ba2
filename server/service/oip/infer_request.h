// SPDX-License-Identifier: Apache-2.0
// Translates a ModelInferRequest to a TensorSpec.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attnbias/v1/service.pb.h"
#include "inference/inference.pb.h"
#include "server/service/oip/model.h"

namespace attnbias {

struct InferRequest {
  std::string id;
  v1::TensorSpec spec;
  // Names of the requested parts; empty for all.
  std::vector<std::string> outputs;
};

// Returns the request's id, which answers repeat, with bounded length.
std::string ShortenedId(const inference::ModelInferRequest& request);

// Errors begin with the path of a field of TensorSpec, or with a field of `request`.
//
// INVALID_ARGUMENT  a parameter, input or output that `model` does not have, or its value
// UNIMPLEMENTED     features of other servers of this protocol
absl::StatusOr<InferRequest> DecodeInferRequest(const Model& model,
                                                inference::ModelInferRequest request);

}  // namespace attnbias
