// SPDX-License-Identifier: Apache-2.0
#include "server/codec/encoding_codec.h"
#include "server/codec/enums.h"

namespace attnbias {

absl::StatusOr<EncodingSpec> Decode(const v1::SymmetricSinusoidal& wire) {
  SymmetricSinusoidalSpec spec;
  spec.dim = wire.dim();
  if (wire.has_base()) spec.base = wire.base();
  spec.layout = EnumOr(wire.layout(), spec.layout);
  return spec;
}

void Encode(const SymmetricSinusoidalSpec& spec,
            v1::SymmetricSinusoidal* wire) {
  wire->set_dim(static_cast<int32_t>(spec.dim));
  wire->set_base(spec.base);
  wire->set_layout(static_cast<v1::SinusoidalLayout>(spec.layout));
}

}  // namespace attnbias
