// SPDX-License-Identifier: Apache-2.0
#include "server/codec/encoding_codec.h"
#include "server/codec/enums.h"

namespace attnbias {

static_assert(SameNumber(AlibiVariant::kSymmetric,
                         v1::ALIBI_VARIANT_SYMMETRIC));
static_assert(SameNumber(AlibiVariant::kCausal, v1::ALIBI_VARIANT_CAUSAL));
static_assert(SameNumber(AlibiVariant::kKeyFromStart,
                         v1::ALIBI_VARIANT_KEY_FROM_START));
static_assert(SameNumber(AlibiVariant::kKeyFromEnd,
                         v1::ALIBI_VARIANT_KEY_FROM_END));

absl::StatusOr<EncodingSpec> Decode(const v1::Alibi& wire) {
  AlibiSpec spec;
  spec.num_heads = wire.num_heads();
  if (wire.has_alibi_bias_max()) spec.alibi_bias_max = wire.alibi_bias_max();
  spec.slopes.assign(wire.slopes().begin(), wire.slopes().end());
  spec.variant = EnumOr(wire.variant(), spec.variant);
  return spec;
}

void Encode(const AlibiSpec& spec, v1::Alibi* wire) {
  wire->set_num_heads(static_cast<int32_t>(spec.num_heads));
  if (spec.slopes.empty()) wire->set_alibi_bias_max(spec.alibi_bias_max);
  wire->mutable_slopes()->Assign(spec.slopes.begin(), spec.slopes.end());
  wire->set_variant(static_cast<v1::AlibiVariant>(spec.variant));
}

}  // namespace attnbias
