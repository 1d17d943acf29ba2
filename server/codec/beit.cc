// SPDX-License-Identifier: Apache-2.0
#include "core/base/status_macros.h"
#include "server/codec/encoding_codec.h"
#include "server/codec/table_codec.h"

namespace attnbias {

absl::StatusOr<EncodingSpec> Decode(const v1::Beit& wire,
                                    const TableSet& tables) {
  BeitSpec spec;
  spec.window_height = wire.window_height();
  spec.window_width = wire.window_width();
  spec.num_heads = wire.num_heads();
  ATTNBIAS_RETURN_IF_ERROR(DecodeTables(
      tables, {{wire.has_table(), wire.table(), "beit.table", &spec.table}}));
  return spec;
}

void Encode(const BeitSpec& spec, v1::Beit* wire) {
  wire->set_window_height(static_cast<int32_t>(spec.window_height));
  wire->set_window_width(static_cast<int32_t>(spec.window_width));
  wire->set_num_heads(static_cast<int32_t>(spec.num_heads));
  if (spec.table) EncodeTable(*spec.table, wire->mutable_table());
}

}  // namespace attnbias
