// SPDX-License-Identifier: Apache-2.0
#include "server/codec/encoding_codec.h"

namespace attnbias {

absl::StatusOr<EncodingSpec> Decode(const v1::Sandwich& wire) {
  SandwichSpec spec;
  spec.num_heads = wire.num_heads();
  if (wire.has_dim()) spec.dim = wire.dim();
  if (wire.has_base()) spec.base = wire.base();
  return spec;
}

void Encode(const SandwichSpec& spec, v1::Sandwich* wire) {
  wire->set_num_heads(static_cast<int32_t>(spec.num_heads));
  wire->set_dim(static_cast<int32_t>(spec.dim));
  wire->set_base(spec.base);
}

}  // namespace attnbias
