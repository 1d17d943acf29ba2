// SPDX-License-Identifier: Apache-2.0
#include "core/base/status_macros.h"
#include "server/codec/encoding_codec.h"
#include "server/codec/enums.h"
#include "server/codec/table_codec.h"

namespace attnbias {

static_assert(SameNumber(Interpolation::kNone, v1::INTERPOLATION_NONE));
static_assert(SameNumber(Interpolation::kLinear, v1::INTERPOLATION_LINEAR));
static_assert(SameNumber(Interpolation::kLinearAlignCorners,
                         v1::INTERPOLATION_LINEAR_ALIGN_CORNERS));

absl::StatusOr<EncodingSpec> Decode(const v1::LearnedAbsolute& wire,
                                    const TableSet& tables) {
  LearnedAbsoluteSpec spec;
  ATTNBIAS_RETURN_IF_ERROR(
      DecodeTables(tables, {{wire.has_table(), wire.table(),
                             "learned_absolute.table", &spec.table}}));
  if (wire.has_offset()) spec.offset = wire.offset();
  if (wire.has_padding_idx()) spec.padding_idx = wire.padding_idx();
  spec.interpolation = EnumOr(wire.interpolation(), spec.interpolation);
  if (wire.has_interpolated_length()) {
    spec.interpolated_length = wire.interpolated_length();
  }
  return spec;
}

void Encode(const LearnedAbsoluteSpec& spec, v1::LearnedAbsolute* wire) {
  if (spec.table) EncodeTable(*spec.table, wire->mutable_table());
  wire->set_offset(spec.offset);
  if (spec.padding_idx) wire->set_padding_idx(*spec.padding_idx);
  wire->set_interpolation(static_cast<v1::Interpolation>(spec.interpolation));
  if (spec.interpolated_length) {
    wire->set_interpolated_length(*spec.interpolated_length);
  }
}

}  // namespace attnbias
