// SPDX-License-Identifier: Apache-2.0
#include "server/codec/encoding_codec.h"

namespace attnbias {

absl::StatusOr<EncodingSpec> Decode(const v1::TransformerXl& wire) {
  TransformerXlSpec spec;
  spec.dim = wire.dim();
  if (wire.has_base()) spec.base = wire.base();
  if (wire.has_clamp_len()) spec.clamp_len = wire.clamp_len();
  return spec;
}

void Encode(const TransformerXlSpec& spec, v1::TransformerXl* wire) {
  wire->set_dim(static_cast<int32_t>(spec.dim));
  wire->set_base(spec.base);
  if (spec.clamp_len) wire->set_clamp_len(*spec.clamp_len);
}

}  // namespace attnbias
