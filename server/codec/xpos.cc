// SPDX-License-Identifier: Apache-2.0
#include "server/codec/encoding_codec.h"
#include "server/codec/enums.h"

namespace attnbias {

absl::StatusOr<EncodingSpec> Decode(const v1::Xpos& wire) {
  XposSpec spec;
  spec.dim = wire.dim();
  if (wire.has_rope_theta()) spec.rope_theta = wire.rope_theta();
  if (wire.has_scale_base()) spec.scale_base = wire.scale_base();
  if (wire.has_gamma()) spec.gamma = wire.gamma();
  if (wire.has_sequence_length()) spec.sequence_length = wire.sequence_length();
  spec.layout = EnumOr(wire.layout(), spec.layout);
  return spec;
}

void Encode(const XposSpec& spec, v1::Xpos* wire) {
  wire->set_dim(static_cast<int32_t>(spec.dim));
  wire->set_rope_theta(spec.rope_theta);
  wire->set_scale_base(spec.scale_base);
  wire->set_gamma(spec.gamma);
  if (spec.sequence_length) wire->set_sequence_length(*spec.sequence_length);
  wire->set_layout(static_cast<v1::RotaryLayout>(spec.layout));
}

}  // namespace attnbias
