// SPDX-License-Identifier: Apache-2.0
#include "core/base/status_macros.h"
#include "server/codec/encoding_codec.h"
#include "server/codec/enums.h"
#include "server/codec/table_codec.h"

namespace attnbias {

absl::StatusOr<EncodingSpec> Decode(const v1::LearnedRelative& wire,
                                    const TableSet& tables) {
  LearnedRelativeSpec spec;
  spec.num_heads = wire.num_heads();
  if (wire.has_left()) spec.left = wire.left();
  if (wire.has_right()) spec.right = wire.right();
  spec.symmetric = wire.symmetric();
  spec.beyond = EnumOr(wire.beyond(), spec.beyond);
  ATTNBIAS_RETURN_IF_ERROR(
      DecodeTables(tables, {{wire.has_table(), wire.table(),
                             "learned_relative.table", &spec.table}}));
  return spec;
}

void Encode(const LearnedRelativeSpec& spec, v1::LearnedRelative* wire) {
  wire->set_num_heads(static_cast<int32_t>(spec.num_heads));
  if (spec.left) wire->set_left(*spec.left);
  if (spec.right) wire->set_right(*spec.right);
  wire->set_symmetric(spec.symmetric);
  wire->set_beyond(static_cast<v1::BeyondReach>(spec.beyond));
  if (spec.table) EncodeTable(*spec.table, wire->mutable_table());
}

}  // namespace attnbias
