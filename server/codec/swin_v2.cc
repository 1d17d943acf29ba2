// SPDX-License-Identifier: Apache-2.0
#include "core/base/status_macros.h"
#include "server/codec/encoding_codec.h"
#include "server/codec/table_codec.h"

namespace attnbias {

absl::StatusOr<EncodingSpec> Decode(const v1::SwinV2& wire) {
  SwinV2Spec spec;
  spec.window_height = wire.window_height();
  spec.window_width = wire.window_width();
  spec.num_heads = wire.num_heads();
  if (wire.has_pretrained_window_height()) {
    spec.pretrained_window_height = wire.pretrained_window_height();
  }
  if (wire.has_pretrained_window_width()) {
    spec.pretrained_window_width = wire.pretrained_window_width();
  }
  ATTNBIAS_RETURN_IF_ERROR(DecodeTables({
      {wire.has_hidden_weight(), wire.hidden_weight(), "swin_v2.hidden_weight",
       &spec.hidden_weight},
      {wire.has_hidden_bias(), wire.hidden_bias(), "swin_v2.hidden_bias",
       &spec.hidden_bias},
      {wire.has_output_weight(), wire.output_weight(), "swin_v2.output_weight",
       &spec.output_weight},
  }));
  return spec;
}

void Encode(const SwinV2Spec& spec, v1::SwinV2* wire) {
  wire->set_window_height(static_cast<int32_t>(spec.window_height));
  wire->set_window_width(static_cast<int32_t>(spec.window_width));
  wire->set_num_heads(static_cast<int32_t>(spec.num_heads));
  wire->set_pretrained_window_height(static_cast<int32_t>(
      spec.pretrained_window_height.value_or(spec.window_height)));
  wire->set_pretrained_window_width(static_cast<int32_t>(
      spec.pretrained_window_width.value_or(spec.window_width)));
  if (spec.hidden_weight) {
    EncodeTable(*spec.hidden_weight, wire->mutable_hidden_weight());
  }
  if (spec.hidden_bias) {
    EncodeTable(*spec.hidden_bias, wire->mutable_hidden_bias());
  }
  if (spec.output_weight) {
    EncodeTable(*spec.output_weight, wire->mutable_output_weight());
  }
}

}  // namespace attnbias
