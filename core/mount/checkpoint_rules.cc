// SPDX-License-Identifier: Apache-2.0
#include "core/mount/checkpoint_rules.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/mount/model_config.h"

namespace attnbias {
namespace {

constexpr std::string_view kAnyNumber = "*";

constexpr Rule kRules[] = {
    {"t5",
     "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "encoder", T5Encoder},
    {"t5",
     "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "decoder", T5Decoder},
    {"mt5",
     "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "encoder", T5Encoder},
    {"mt5",
     "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "decoder", T5Decoder},
    {"umt5",
     "encoder.block.*.layer.0.SelfAttention.relative_attention_bias.weight",
     "encoder.layers.*", T5Encoder},
    {"umt5",
     "decoder.block.*.layer.0.SelfAttention.relative_attention_bias.weight",
     "decoder.layers.*", T5Decoder},
    {"longt5",
     "encoder.block.0.layer.0.LocalSelfAttention.relative_attention_bias."
     "weight",
     "encoder", T5Encoder},
    {"longt5",
     "encoder.block.0.layer.0.TransientGlobalSelfAttention."
     "relative_attention_bias.weight",
     "encoder", T5Encoder},
    // Of positions counted in blocks.
    {"longt5",
     "encoder.block.0.layer.0.TransientGlobalSelfAttention."
     "global_relative_attention_bias.weight",
     "encoder.global", T5Encoder},
    {"longt5",
     "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "decoder", T5Decoder},
    {"bert", "embeddings.position_embeddings.weight", "positions",
     BertPositions},
    {"bert", "encoder.layer.*.attention.self.distance_embedding.weight",
     "encoder.layers.*", BertDistances},
    {"roberta", "embeddings.position_embeddings.weight", "positions",
     RobertaPositions},
    {"roberta", "encoder.layer.*.attention.self.distance_embedding.weight",
     "encoder.layers.*", BertDistances},
    {"gpt2", "wpe.weight", "positions", PositionsFrom0},
    {"opt", "decoder.embed_positions.weight", "positions", PositionsFrom2},
    {"bart", "encoder.embed_positions.weight", "encoder.positions",
     PositionsFrom2},
    {"bart", "decoder.embed_positions.weight", "decoder.positions",
     PositionsFrom2},
    // Its padding is 1 whatever the configuration says.
    {"mpnet", "embeddings.position_embeddings.weight", "positions",
     PositionsFrom2},
    {"mpnet", "encoder.relative_attention_bias.weight", "encoder", MpnetBias},
    {"swin", "embeddings.position_embeddings", "positions", PositionsFrom0},
    {"swin",
     "encoder.layers.*.blocks.*.attention.self.relative_position_bias_table",
     "encoder.layers.*.blocks.*", SwinBias},
    // One row more than there are tokens: the sum of the two fails.
    {"swinv2", "embeddings.position_embeddings", "positions", nullptr},
    {"swinv2",
     "encoder.layers.*.blocks.*.attention.self.continuous_position_bias_mlp.0."
     "weight",
     "encoder.layers.*.blocks.*", SwinV2Bias, "mlp.0.weight"},
    {"swinv2",
     "encoder.layers.*.blocks.*.attention.self.continuous_position_bias_mlp.0."
     "bias",
     "encoder.layers.*.blocks.*", SwinV2Bias, "mlp.0.bias"},
    {"swinv2",
     "encoder.layers.*.blocks.*.attention.self.continuous_position_bias_mlp.2."
     "weight",
     "encoder.layers.*.blocks.*", SwinV2Bias, "mlp.2.weight"},
    {"beit", "embeddings.position_embeddings", "positions", BeitPositions},
    {"beit", "encoder.relative_position_bias.relative_position_bias_table",
     "encoder", BeitBias},
    {"beit",
     "encoder.layer.*.attention.attention.relative_position_bias."
     "relative_position_bias_table",
     "encoder.layers.*", BeitBias},
    {"vit", "embeddings.position_embeddings", "positions", PositionsFrom0},
    {"deit", "embeddings.position_embeddings", "positions", PositionsFrom0},
    // Where they are learned, and not sines.
    {"detr", "position_embedding.row_embeddings.weight", "rows",
     PositionsFrom0},
    {"detr", "position_embedding.column_embeddings.weight", "columns",
     PositionsFrom0},
    {"detr", "query_position_embeddings.weight", "queries", PositionsFrom0},
    {"deberta-v2", "embeddings.position_embeddings.weight", "positions",
     PositionsFrom0},
    {"deberta-v2", "encoder.rel_embeddings.weight", "encoder", DebertaIndices},
};

using Segments = std::vector<std::string>;

Segments Split(std::string_view name) {
  return absl::StrSplit(absl::string_view(name.data(), name.size()), '.');
}

}  // namespace

absl::StatusOr<std::vector<Rule>> RulesFor(ModelConfig& config) {
  const std::string model_type = config.String("model_type", "");
  std::vector<Rule> rules;
  std::vector<std::string> known;
  for (const Rule& rule : kRules) {
    if (rule.model_type == model_type) rules.push_back(rule);
    if (known.empty() || known.back() != rule.model_type) {
      known.emplace_back(rule.model_type);
    }
  }
  if (rules.empty()) {
    config.Refuse("model_type", absl::StrCat("'", model_type, "'"),
                  absl::StrCat("one of ", absl::StrJoin(known, ", ")));
    return config.status();
  }
  return rules;
}

std::optional<Match> MatchTensor(const Rule& rule, std::string_view tensor) {
  const Segments segments = Split(tensor);
  const Segments pattern = Split(rule.tensor);
  if (segments.size() < pattern.size()) return std::nullopt;
  auto segment = segments.end() - static_cast<int64_t>(pattern.size());
  Segments place = Split(rule.place);
  auto star = place.begin();
  Match match;
  for (const std::string& wanted : pattern) {
    if (wanted == kAnyNumber) {
      uint32_t number = 0;
      if (!absl::SimpleAtoi(*segment, &number)) return std::nullopt;
      match.numbers.push_back(number);
      star = std::find(star, place.end(), kAnyNumber);
      *star = *segment;
    } else if (wanted != *segment) {
      return std::nullopt;
    }
    ++segment;
  }
  match.place = absl::StrJoin(place, ".");
  return match;
}

}  // namespace attnbias
