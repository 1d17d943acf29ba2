// SPDX-License-Identifier: Apache-2.0
#include "server/codec/encoding_codec.h"
#include "server/codec/enums.h"

namespace attnbias {

static_assert(SameNumber(KerpleKernel::kLog, v1::KERPLE_KERNEL_LOG));
static_assert(SameNumber(KerpleKernel::kPower, v1::KERPLE_KERNEL_POWER));

absl::StatusOr<EncodingSpec> Decode(const v1::Kerple& wire) {
  KerpleSpec spec;
  spec.kernel = OptionalEnum<KerpleKernel>(wire.kernel());
  spec.p.assign(wire.p().begin(), wire.p().end());
  spec.a.assign(wire.a().begin(), wire.a().end());
  spec.num_heads = wire.num_heads();
  return spec;
}

void Encode(const KerpleSpec& spec, v1::Kerple* wire) {
  if (spec.kernel) {
    wire->set_kernel(static_cast<v1::KerpleKernel>(*spec.kernel));
  }
  wire->mutable_p()->Assign(spec.p.begin(), spec.p.end());
  wire->mutable_a()->Assign(spec.a.begin(), spec.a.end());
  wire->set_num_heads(static_cast<int32_t>(spec.num_heads));
}

}  // namespace attnbias
