// SPDX-License-Identifier: Apache-2.0
// The contract's LogitsSpec and LogitsHeader to and from core's values.
#ifndef ATTNBIAS_SERVER_CODEC_LOGITS_CODEC_H_
#define ATTNBIAS_SERVER_CODEC_LOGITS_CODEC_H_

#include "absl/status/statusor.h"
#include "attnbias/v1/logits.pb.h"
#include "core/logits/plan.h"
#include "core/logits/spec/logits_spec.h"
#include "core/mount/registry.h"

namespace attnbias {

// `spec` has passed CheckKnown. Messages begin with a field's path inside
// LogitsSpec and ": ".
//
// INVALID_ARGUMENT  no term; a table that is not one; a field that only the
//                   contract has
// NOT_FOUND         a table that this server does not hold
absl::StatusOr<LogitsSpec> DecodeLogitsSpec(const v1::LogitsSpec& spec,
                                            const TableSet& tables);

v1::LogitsHeader EncodeLogitsHeader(const LogitsPlan& plan);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_CODEC_LOGITS_CODEC_H_
