// SPDX-License-Identifier: Apache-2.0
#include "server/codec/encoding_codec.h"
#include "server/codec/enums.h"

namespace attnbias {

static_assert(SameNumber(DebertaTerm::kContentToPosition,
                         v1::DEBERTA_TERM_CONTENT_TO_POSITION));
static_assert(SameNumber(DebertaTerm::kPositionToContent,
                         v1::DEBERTA_TERM_POSITION_TO_CONTENT));
static_assert(SameNumber(DebertaTerm::kBucket, v1::DEBERTA_TERM_BUCKET));
static_assert(SameNumber(DebertaEdge::kMicrosoft, v1::DEBERTA_EDGE_MICROSOFT));
static_assert(SameNumber(DebertaEdge::kHf, v1::DEBERTA_EDGE_HF));

absl::StatusOr<EncodingSpec> Decode(const v1::Deberta& wire) {
  DebertaSpec spec;
  if (wire.has_bucket_size()) spec.bucket_size = wire.bucket_size();
  if (wire.has_max_position()) spec.max_position = wire.max_position();
  spec.term = EnumOr(wire.term(), spec.term);
  spec.edge = EnumOr(wire.edge(), spec.edge);
  return spec;
}

void Encode(const DebertaSpec& spec, v1::Deberta* wire) {
  wire->set_bucket_size(static_cast<int32_t>(spec.bucket_size));
  wire->set_max_position(static_cast<int32_t>(spec.max_position));
  wire->set_term(static_cast<v1::DebertaTerm>(spec.term));
  wire->set_edge(static_cast<v1::DebertaEdge>(spec.edge));
}

}  // namespace attnbias
