// SPDX-License-Identifier: Apache-2.0
#include "server/codec/encoding_codec.h"
#include "server/codec/enums.h"

namespace attnbias {

static_assert(SameNumber(MultiAxisLayout::kTensor2Tensor,
                         v1::MULTI_AXIS_LAYOUT_TENSOR2TENSOR));
static_assert(SameNumber(MultiAxisLayout::kInterleaved,
                         v1::MULTI_AXIS_LAYOUT_INTERLEAVED));
static_assert(SameNumber(MultiAxisLayout::kConcatenated,
                         v1::MULTI_AXIS_LAYOUT_CONCATENATED));

absl::StatusOr<EncodingSpec> Decode(const v1::MultiAxisSinusoidal& wire) {
  MultiAxisSinusoidalSpec spec;
  spec.dim = wire.dim();
  spec.num_axes = wire.num_axes();
  spec.layout = OptionalEnum<MultiAxisLayout>(wire.layout());
  if (wire.has_base()) spec.base = wire.base();
  if (wire.has_min_timescale()) spec.min_timescale = wire.min_timescale();
  if (wire.has_max_timescale()) spec.max_timescale = wire.max_timescale();
  return spec;
}

void Encode(const MultiAxisSinusoidalSpec& spec,
            v1::MultiAxisSinusoidal* wire) {
  wire->set_dim(static_cast<int32_t>(spec.dim));
  wire->set_num_axes(static_cast<int32_t>(spec.num_axes));
  if (!spec.layout) return;
  wire->set_layout(static_cast<v1::MultiAxisLayout>(*spec.layout));
  if (*spec.layout == MultiAxisLayout::kTensor2Tensor) {
    wire->set_min_timescale(spec.min_timescale);
    wire->set_max_timescale(spec.max_timescale);
  } else {
    wire->set_base(spec.base);
  }
}

}  // namespace attnbias
