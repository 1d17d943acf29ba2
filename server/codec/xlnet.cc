// SPDX-License-Identifier: Apache-2.0
#include "server/codec/encoding_codec.h"
#include "server/codec/enums.h"

namespace attnbias {

static_assert(SameNumber(XlnetAttention::kBidirectional,
                         v1::XLNET_ATTENTION_BIDIRECTIONAL));
static_assert(SameNumber(XlnetAttention::kUnidirectional,
                         v1::XLNET_ATTENTION_UNIDIRECTIONAL));

absl::StatusOr<EncodingSpec> Decode(const v1::Xlnet& wire) {
  XlnetSpec spec;
  spec.dim = wire.dim();
  if (wire.has_base()) spec.base = wire.base();
  if (wire.has_clamp_len()) spec.clamp_len = wire.clamp_len();
  spec.attn_type = EnumOr(wire.attn_type(), spec.attn_type);
  return spec;
}

void Encode(const XlnetSpec& spec, v1::Xlnet* wire) {
  wire->set_dim(static_cast<int32_t>(spec.dim));
  wire->set_base(spec.base);
  if (spec.clamp_len) wire->set_clamp_len(*spec.clamp_len);
  wire->set_attn_type(static_cast<v1::XlnetAttention>(spec.attn_type));
}

}  // namespace attnbias
