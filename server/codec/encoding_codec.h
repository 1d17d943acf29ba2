// SPDX-License-Identifier: Apache-2.0
// The contract's encodings to and from core's specs, whichever there are.
#ifndef ATTNBIAS_SERVER_CODEC_ENCODING_CODEC_H_
#define ATTNBIAS_SERVER_CODEC_ENCODING_CODEC_H_

#include "absl/status/statusor.h"
#include "attnbias/v1/service.pb.h"
#include "core/encoding/spec/encoding_spec.h"
#include "core/mount/registry.h"

namespace attnbias {

// `tables` are those that a spec may name.
absl::StatusOr<EncodingSpec> DecodeEncoding(const v1::TensorSpec& spec,
                                            const TableSet& tables);
void EncodeEncoding(EncodingSpec spec, v1::TensorSpec* out);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_CODEC_ENCODING_CODEC_H_
