// SPDX-License-Identifier: Apache-2.0
#include "core/base/status_macros.h"
#include "server/codec/encoding_codec.h"
#include "server/codec/enums.h"
#include "server/codec/table_codec.h"

namespace attnbias {

static_assert(SameNumber(BucketRule::kExact, v1::BUCKET_RULE_EXACT));
static_assert(SameNumber(BucketRule::kFloat32Log, v1::BUCKET_RULE_FLOAT32_LOG));

absl::StatusOr<EncodingSpec> Decode(const v1::T5& wire,
                                    const TableSet& tables) {
  T5Spec spec;
  spec.num_heads = wire.num_heads();
  if (wire.has_num_buckets()) spec.num_buckets = wire.num_buckets();
  if (wire.has_max_distance()) spec.max_distance = wire.max_distance();
  if (wire.has_bidirectional()) spec.bidirectional = wire.bidirectional();
  spec.bucket_rule = EnumOr(wire.bucket_rule(), spec.bucket_rule);
  ATTNBIAS_RETURN_IF_ERROR(DecodeTables(
      tables, {{wire.has_table(), wire.table(), "t5.table", &spec.table}}));
  return spec;
}

void Encode(const T5Spec& spec, v1::T5* wire) {
  wire->set_num_heads(static_cast<int32_t>(spec.num_heads));
  wire->set_num_buckets(static_cast<int32_t>(spec.num_buckets));
  wire->set_max_distance(static_cast<int32_t>(spec.max_distance));
  if (spec.bidirectional) wire->set_bidirectional(*spec.bidirectional);
  wire->set_bucket_rule(static_cast<v1::BucketRule>(spec.bucket_rule));
  if (spec.table) EncodeTable(*spec.table, wire->mutable_table());
}

}  // namespace attnbias
