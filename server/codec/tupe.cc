// SPDX-License-Identifier: Apache-2.0
#include "core/base/status_macros.h"
#include "server/codec/encoding_codec.h"
#include "server/codec/table_codec.h"

namespace attnbias {

absl::StatusOr<EncodingSpec> Decode(const v1::Tupe& wire,
                                    const TableSet& tables) {
  TupeSpec spec;
  spec.num_heads = wire.num_heads();
  if (wire.has_num_buckets()) spec.num_buckets = wire.num_buckets();
  if (wire.has_max_distance()) spec.max_distance = wire.max_distance();
  if (wire.has_norm_eps()) spec.norm_eps = wire.norm_eps();
  spec.reset_class_token = wire.reset_class_token();
  if (wire.has_position_scale()) spec.position_scale = wire.position_scale();
  ATTNBIAS_RETURN_IF_ERROR(DecodeTables(
      tables, {
                  {wire.has_relative_table(), wire.relative_table(),
                   "tupe.relative_table", &spec.relative_table},
                  {wire.has_position_table(), wire.position_table(),
                   "tupe.position_table", &spec.position_table},
                  {wire.has_query_weight(), wire.query_weight(),
                   "tupe.query_weight", &spec.query_weight},
                  {wire.has_query_bias(), wire.query_bias(), "tupe.query_bias",
                   &spec.query_bias},
                  {wire.has_key_weight(), wire.key_weight(), "tupe.key_weight",
                   &spec.key_weight},
                  {wire.has_key_bias(), wire.key_bias(), "tupe.key_bias",
                   &spec.key_bias},
                  {wire.has_norm_weight(), wire.norm_weight(),
                   "tupe.norm_weight", &spec.norm_weight},
                  {wire.has_norm_bias(), wire.norm_bias(), "tupe.norm_bias",
                   &spec.norm_bias},
              }));
  return spec;
}

void Encode(const TupeSpec& spec, v1::Tupe* wire) {
  wire->set_num_heads(static_cast<int32_t>(spec.num_heads));
  if (spec.relative_table) {
    EncodeTable(*spec.relative_table, wire->mutable_relative_table());
  }
  if (spec.relative_table || !spec.position_table) {
    wire->set_num_buckets(static_cast<int32_t>(spec.num_buckets));
    wire->set_max_distance(static_cast<int32_t>(spec.max_distance));
  }
  wire->set_reset_class_token(spec.reset_class_token);
  if (!spec.position_table) return;
  EncodeTable(*spec.position_table, wire->mutable_position_table());
  if (spec.query_weight) {
    EncodeTable(*spec.query_weight, wire->mutable_query_weight());
  }
  if (spec.query_bias) {
    EncodeTable(*spec.query_bias, wire->mutable_query_bias());
  }
  if (spec.key_weight) {
    EncodeTable(*spec.key_weight, wire->mutable_key_weight());
  }
  if (spec.key_bias) EncodeTable(*spec.key_bias, wire->mutable_key_bias());
  if (spec.norm_weight && spec.norm_bias) {
    EncodeTable(*spec.norm_weight, wire->mutable_norm_weight());
    EncodeTable(*spec.norm_bias, wire->mutable_norm_bias());
    wire->set_norm_eps(spec.norm_eps);
  }
  if (spec.position_scale) wire->set_position_scale(*spec.position_scale);
}

}  // namespace attnbias
