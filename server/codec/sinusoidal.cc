// SPDX-License-Identifier: Apache-2.0
#include "server/codec/encoding_codec.h"
#include "server/codec/enums.h"

namespace attnbias {

static_assert(SameNumber(SinusoidalLayout::kInterleaved,
                         v1::SINUSOIDAL_LAYOUT_INTERLEAVED));
static_assert(SameNumber(SinusoidalLayout::kConcatenated,
                         v1::SINUSOIDAL_LAYOUT_CONCATENATED));
static_assert(SameNumber(SinusoidalLayout::kTensor2Tensor,
                         v1::SINUSOIDAL_LAYOUT_TENSOR2TENSOR));

absl::StatusOr<EncodingSpec> Decode(const v1::Sinusoidal& wire) {
  SinusoidalSpec spec;
  spec.dim = wire.dim();
  if (wire.has_base()) spec.base = wire.base();
  spec.layout = EnumOr(wire.layout(), spec.layout);
  if (wire.has_min_timescale()) spec.min_timescale = wire.min_timescale();
  if (wire.has_max_timescale()) spec.max_timescale = wire.max_timescale();
  return spec;
}

void Encode(const SinusoidalSpec& spec, v1::Sinusoidal* wire) {
  wire->set_dim(static_cast<int32_t>(spec.dim));
  wire->set_layout(static_cast<v1::SinusoidalLayout>(spec.layout));
  if (spec.layout == SinusoidalLayout::kTensor2Tensor) {
    wire->set_min_timescale(spec.min_timescale);
    wire->set_max_timescale(spec.max_timescale);
  } else {
    wire->set_base(spec.base);
  }
}

}  // namespace attnbias
