// SPDX-License-Identifier: Apache-2.0
#include "server/codec/encoding_codec.h"

namespace attnbias {

absl::StatusOr<EncodingSpec> Decode(const v1::Conformer& wire) {
  ConformerSpec spec;
  spec.dim = wire.dim();
  if (wire.has_base()) spec.base = wire.base();
  return spec;
}

void Encode(const ConformerSpec& spec, v1::Conformer* wire) {
  wire->set_dim(static_cast<int32_t>(spec.dim));
  wire->set_base(spec.base);
}

}  // namespace attnbias
