// SPDX-License-Identifier: Apache-2.0
// The contract's TensorSpec and TensorHeader to and from core's values: fields,
// presence and defaults. What values are allowed is core's to say.
#ifndef ATTNBIAS_SERVER_CODEC_SPEC_CODEC_H_
#define ATTNBIAS_SERVER_CODEC_SPEC_CODEC_H_

#include "absl/status/statusor.h"
#include "attnbias/v1/service.pb.h"
#include "core/encoding/spec/tensor_spec.h"
#include "core/engine/plan.h"
#include "core/mount/registry.h"

namespace attnbias {

// `spec` has passed CheckKnown; `tables` are those that it may name. Messages
// begin with a field's path inside TensorSpec and ": ".
//
// INVALID_ARGUMENT  no encoding; a table that is not one
// NOT_FOUND         a table by name or digest that is not mounted
absl::StatusOr<TensorSpec> DecodeSpec(const v1::TensorSpec& spec,
                                      const TableSet& tables);

// Every default is written out; tables become digests.
v1::TensorSpec EncodeSpec(const TensorSpec& spec);

v1::TensorHeader EncodeHeader(const Plan& plan);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_CODEC_SPEC_CODEC_H_
