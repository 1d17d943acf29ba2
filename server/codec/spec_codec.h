// SPDX-License-Identifier: Apache-2.0
// The contract's TensorSpec and TensorHeader to and from core's values: fields,
// presence and defaults. What values are allowed is core's to say.
#ifndef ATTNBIAS_SERVER_CODEC_SPEC_CODEC_H_
#define ATTNBIAS_SERVER_CODEC_SPEC_CODEC_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnbias/v1/service.pb.h"
#include "core/base/invalid.h"
#include "core/encoding/spec/tensor_spec.h"
#include "core/engine/plan.h"
#include "core/mount/registry.h"

namespace attnbias {

// `spec` has passed CheckKnown; `tables` are those that it may name. Messages
// begin with a field's path inside TensorSpec and ": ".
//
// INVALID_ARGUMENT  no encoding; a table that is not one
// NOT_FOUND         a table by name or digest that is not mounted
// PERMISSION_DENIED a table by a name that `tables` may not have
absl::StatusOr<TensorSpec> DecodeSpec(const v1::TensorSpec& spec,
                                      const TableSet& tables);

// Reads the oneof `fill` of a Mask or a LogitsSpec, which has passed
// CheckKnown. `parent` is its path and ".", for messages.
//
// INVALID_ARGUMENT  fill_lowest is false
template <typename Message>
absl::Status DecodeFill(const Message& message, const std::string& parent,
                        MaskFill* fill) {
  if (message.has_fill_value()) *fill = message.fill_value();
  if (!message.has_fill_lowest()) return absl::OkStatus();
  if (!message.fill_lowest()) {
    return Invalid(parent,
                   "fill_lowest: got false, want true or the field unset");
  }
  *fill = Lowest();
  return absl::OkStatus();
}

// Every default is written out; tables become digests.
v1::TensorSpec EncodeSpec(TensorSpec spec);

v1::TensorHeader EncodeHeader(const Plan& plan);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_CODEC_SPEC_CODEC_H_
