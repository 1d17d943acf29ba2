// SPDX-License-Identifier: Apache-2.0
// What a ModelInferRequest asks for, in the words of attnbias.v1.
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
  // Names of the parts wanted; none: all.
  std::vector<std::string> outputs;
};

// The request's id, as an answer to whatever it asks for repeats it.
std::string ShortenedId(const inference::ModelInferRequest& request);

// Messages begin with the path of a field of TensorSpec, or with a field of `request`.
//
// INVALID_ARGUMENT  a parameter, an input or an output that `model` does not
//                   have, or its value
// UNIMPLEMENTED     what other servers of this protocol do
absl::StatusOr<InferRequest> DecodeInferRequest(const Model& model,
                                                inference::ModelInferRequest request);

}  // namespace attnbias
