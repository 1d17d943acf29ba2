// SPDX-License-Identifier: Apache-2.0
// Vectors of positions: which row is position 0, in the models that learn
// absolute ones, and BERT's of distances.
//
// No spec says padding_idx: torch's leaves the row out of training, and answers
// with what the row holds. It is at the position before the first.
#include "core/encoding/spec/learned_absolute.h"
#include "core/encoding/spec/relative_table.h"
#include "core/mount/table_use.h"

namespace attnbias {
namespace {

LearnedAbsoluteSpec PositionsFrom(int64_t row, const Place& place) {
  return {.table = place.table(), .offset = row};
}

// Before transformers 5 a model could have distances in place of positions,
// whose table it then kept and did not add.
bool AddsPositions(ModelConfig& config) {
  return config.String("position_embedding_type", "absolute") == "absolute";
}

}  // namespace

std::optional<EncodingSpec> PositionsFrom0(const Place& place,
                                           ModelConfig& /*config*/) {
  return PositionsFrom(0, place);
}

std::optional<EncodingSpec> PositionsFrom2(const Place& place,
                                           ModelConfig& /*config*/) {
  return PositionsFrom(2, place);
}

std::optional<EncodingSpec> BertPositions(const Place& place,
                                          ModelConfig& config) {
  if (!AddsPositions(config)) return std::nullopt;
  return PositionsFrom(0, place);
}

// One vector for each distance, query - key, that the positions can have.
std::optional<EncodingSpec> BertDistances(const Place& place,
                                          ModelConfig& /*config*/) {
  const int64_t reach = place.table().rows() / 2;
  return ShawSpec{.table = place.table(),
                  .left = reach,
                  .right = reach,
                  .beyond = BeyondReach::kRefuse,
                  .sign = RelativeSign::kQueryMinusKey};
}

std::optional<EncodingSpec> RobertaPositions(const Place& place,
                                             ModelConfig& config) {
  if (!AddsPositions(config)) return std::nullopt;
  return PositionsFrom(config.Integer("pad_token_id", 1) + 1, place);
}

}  // namespace attnbias
