// SPDX-License-Identifier: Apache-2.0
// Learned absolute positions: which row is position 0, in the models that have
// them.
//
// No spec says padding_idx: torch's leaves the row out of training, and answers
// with what the row holds. It is at the position before the first.
#include "core/mount/table_use.h"

namespace attnbias {
namespace {

LearnedAbsoluteSpec PositionsFrom(int64_t row, const Place& place) {
  return {.table = place.table(), .offset = row};
}

// Models of before transformers 5 could have relative positions in place of the
// absolute, whose table they then kept and did not add.
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

std::optional<EncodingSpec> RobertaPositions(const Place& place,
                                             ModelConfig& config) {
  if (!AddsPositions(config)) return std::nullopt;
  return PositionsFrom(config.Integer("pad_token_id", 1) + 1, place);
}

}  // namespace attnbias
