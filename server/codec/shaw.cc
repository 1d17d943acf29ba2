// SPDX-License-Identifier: Apache-2.0
#include "core/base/status_macros.h"
#include "server/codec/encoding_codec.h"
#include "server/codec/enums.h"
#include "server/codec/table_codec.h"

namespace attnbias {

static_assert(SameNumber(BeyondReach::kClip, v1::BEYOND_REACH_CLIP));
static_assert(SameNumber(BeyondReach::kRefuse, v1::BEYOND_REACH_REFUSE));
static_assert(SameNumber(RelativeSign::kKeyMinusQuery,
                         v1::RELATIVE_SIGN_KEY_MINUS_QUERY));
static_assert(SameNumber(RelativeSign::kQueryMinusKey,
                         v1::RELATIVE_SIGN_QUERY_MINUS_KEY));

absl::StatusOr<EncodingSpec> Decode(const v1::Shaw& wire,
                                    const TableSet& tables) {
  ShawSpec spec;
  ATTNBIAS_RETURN_IF_ERROR(DecodeTables(
      tables, {{wire.has_table(), wire.table(), "shaw.table", &spec.table}}));
  if (wire.has_left()) spec.left = wire.left();
  if (wire.has_right()) spec.right = wire.right();
  spec.beyond = EnumOr(wire.beyond(), spec.beyond);
  spec.sign = EnumOr(wire.sign(), spec.sign);
  return spec;
}

void Encode(const ShawSpec& spec, v1::Shaw* wire) {
  if (spec.table) EncodeTable(*spec.table, wire->mutable_table());
  if (spec.left) wire->set_left(*spec.left);
  if (spec.right) wire->set_right(*spec.right);
  wire->set_beyond(static_cast<v1::BeyondReach>(spec.beyond));
  wire->set_sign(static_cast<v1::RelativeSign>(spec.sign));
}

}  // namespace attnbias
