// SPDX-License-Identifier: Apache-2.0
#include "core/base/status_macros.h"
#include "server/codec/encoding_codec.h"
#include "server/codec/table_codec.h"

namespace attnbias {

absl::StatusOr<EncodingSpec> Decode(const v1::Fire& wire,
                                    const TableSet& tables) {
  FireSpec spec;
  spec.num_heads = wire.num_heads();
  if (wire.has_c()) spec.c = wire.c();
  if (wire.has_threshold()) spec.threshold = wire.threshold();
  if (wire.has_eps()) spec.eps = wire.eps();
  ATTNBIAS_RETURN_IF_ERROR(
      DecodeTables(tables, {
                               {wire.has_hidden_weight(), wire.hidden_weight(),
                                "fire.hidden_weight", &spec.hidden_weight},
                               {wire.has_hidden_bias(), wire.hidden_bias(),
                                "fire.hidden_bias", &spec.hidden_bias},
                               {wire.has_output_weight(), wire.output_weight(),
                                "fire.output_weight", &spec.output_weight},
                               {wire.has_output_bias(), wire.output_bias(),
                                "fire.output_bias", &spec.output_bias},
                           }));
  return spec;
}

void Encode(const FireSpec& spec, v1::Fire* wire) {
  wire->set_num_heads(static_cast<int32_t>(spec.num_heads));
  wire->set_c(spec.c);
  wire->set_threshold(spec.threshold);
  wire->set_eps(spec.eps);
  if (spec.hidden_weight) {
    EncodeTable(*spec.hidden_weight, wire->mutable_hidden_weight());
  }
  if (spec.hidden_bias) {
    EncodeTable(*spec.hidden_bias, wire->mutable_hidden_bias());
  }
  if (spec.output_weight) {
    EncodeTable(*spec.output_weight, wire->mutable_output_weight());
  }
  if (spec.output_bias) {
    EncodeTable(*spec.output_bias, wire->mutable_output_bias());
  }
}

}  // namespace attnbias
