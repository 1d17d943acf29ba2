// SPDX-License-Identifier: Apache-2.0
#include "core/mount/checkpoint_rules.h"

#include <algorithm>
#include <array>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/encoding/spec/deberta.h"
#include "core/encoding/spec/learned_absolute.h"
#include "core/encoding/spec/relative_table.h"
#include "core/encoding/spec/swin.h"
#include "core/encoding/spec/swin_v2.h"
#include "core/encoding/spec/t5.h"

namespace attnbias {
namespace {

using Spec = std::optional<EncodingSpec>;

// Position p is row p + kFirstRow. No spec says padding_idx: torch's leaves the
// row out of training, and answers with what the row holds. It is at the
// position before the first.
template <int64_t kFirstRow>
Spec PositionsFrom(const Site& site, ModelConfig& /*config*/) {
  return LearnedAbsoluteSpec{.table = site.table(), .offset = kFirstRow};
}

// Before transformers 5 a model could have distances in place of positions,
// whose table it then kept and did not add.
bool AddsPositions(ModelConfig& config) {
  return config.String("position_embedding_type", "absolute") == "absolute";
}

Spec BertPositions(const Site& site, ModelConfig& config) {
  if (!AddsPositions(config)) return std::nullopt;
  return PositionsFrom<0>(site, config);
}

Spec RobertaPositions(const Site& site, ModelConfig& config) {
  if (!AddsPositions(config)) return std::nullopt;
  return LearnedAbsoluteSpec{.table = site.table(),
                             .offset = config.Integer("pad_token_id", 1) + 1};
}

// One vector for each distance, query - key, that the positions can have.
Spec BertDistances(const Site& site, ModelConfig& /*config*/) {
  const int64_t reach = site.table().rows() / 2;
  return ShawSpec{.table = site.table(),
                  .left = reach,
                  .right = reach,
                  .beyond = BeyondReach::kRefuse,
                  .sign = RelativeSign::kQueryMinusKey};
}

constexpr int64_t kT5Buckets = 32;

template <bool kBidirectional>
Spec T5Bias(const Site& site, ModelConfig& config) {
  return T5Spec{
      .num_heads = site.table().columns(),
      .num_buckets =
          config.Integer("relative_attention_num_buckets", kT5Buckets),
      .max_distance = config.Integer("relative_attention_max_distance", 128),
      .bidirectional = kBidirectional,
      .table = site.table(),
      // torch's logarithm chose the buckets in training.
      .bucket_rule = BucketRule::kFloat32Log};
}

// Its code computes T5's buckets whatever number the table was made for.
Spec MpnetBias(const Site& site, ModelConfig& /*config*/) {
  if (site.table().rows() != kT5Buckets) return std::nullopt;
  ModelConfig defaults(nlohmann::json::object());
  return T5Bias<true>(site, defaults);
}

// The indices of the rows that pairs take.
Spec DebertaIndices(const Site& site, ModelConfig& config) {
  const int64_t buckets = config.Integer("position_buckets", -1);
  int64_t reach = config.Integer("max_relative_positions", -1);
  if (reach < 1) reach = config.Integer("max_position_embeddings", 512);
  const int64_t rows = 2 * (buckets > 0 ? buckets : reach);
  if (site.table().rows() != rows) {
    config.Refuse(buckets > 0 ? "position_buckets" : "max_relative_positions",
                  absl::StrCat(rows / 2),
                  absl::StrCat(site.table().rows() / 2,
                               ", half the rows of rel_embeddings"));
  }
  DebertaSpec spec{.bucket_size = std::max<int64_t>(buckets, 0),
                   .max_position = reach};
  if (spec.bucket_size != 0) {
    spec.edge = DebertaEdge::kHf;
    spec.bucket_rule = BucketRule::kFloat32Log;
  }
  return spec;
}

// Patches of an image, downwards and across.
std::array<int64_t, 2> GridOf(ModelConfig& config, int64_t patch_size) {
  const std::array<int64_t, 2> image = config.Sides("image_size", 224);
  const std::array<int64_t, 2> patch = config.Sides("patch_size", patch_size);
  return {image[0] / patch[0], image[1] / patch[1]};
}

int64_t WindowSize(ModelConfig& config) {
  return config.Integer("window_size", 7);
}

// Where a stage has fewer tokens than a window, the table is a whole window's
// nevertheless.
Spec SwinBias(const Site& site, ModelConfig& config) {
  const int64_t window = WindowSize(config);
  return SwinSpec{.window_height = window,
                  .window_width = window,
                  .num_heads = site.table().columns(),
                  .table = site.table()};
}

// A window is no larger than its stage, which has half the side of the stage
// before; where height and width differ, it is a square of what the height
// leaves.
Spec SwinV2Bias(const Site& site, ModelConfig& config) {
  if (site.tables.size() < 3) return std::nullopt;
  const int64_t stage = site.numbers.front();
  const int64_t height = GridOf(config, 4)[0];
  const int64_t window =
      std::min(WindowSize(config), stage < 63 ? height >> stage : 0);
  const Table& output_weight = site.tables.at("mlp.2.weight");
  SwinV2Spec spec{.window_height = window,
                  .window_width = window,
                  .num_heads = output_weight.rows(),
                  .hidden_weight = site.tables.at("mlp.0.weight"),
                  .hidden_bias = site.tables.at("mlp.0.bias"),
                  .output_weight = output_weight};
  const int64_t pretrained =
      config.Element("pretrained_window_sizes", stage, 0);
  if (pretrained > 0) {
    spec.pretrained_window_height = pretrained;
    spec.pretrained_window_width = pretrained;
  }
  return spec;
}

// The table of a grid that is not square is read with its sides exchanged and
// resampled: no row of the answer is one of the table's.
Spec BeitBias(const Site& site, ModelConfig& config) {
  const auto [height, width] = GridOf(config, 16);
  if (height != width) return std::nullopt;
  return BeitSpec{.window_height = height,
                  .window_width = width,
                  .num_heads = site.table().columns(),
                  .table = site.table()};
}

// Those of a grid that is not square are resampled, too.
Spec BeitPositions(const Site& site, ModelConfig& config) {
  const auto [height, width] = GridOf(config, 16);
  if (height != width) return std::nullopt;
  return PositionsFrom<0>(site, config);
}

constexpr std::string_view kAnyNumber = "*";

constexpr Rule kRules[] = {
    {"t5",
     "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "encoder", T5Bias<true>},
    {"t5",
     "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "decoder", T5Bias<false>},
    {"mt5",
     "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "encoder", T5Bias<true>},
    {"mt5",
     "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "decoder", T5Bias<false>},
    {"umt5",
     "encoder.block.*.layer.0.SelfAttention.relative_attention_bias.weight",
     "encoder.layers.*", T5Bias<true>},
    {"umt5",
     "decoder.block.*.layer.0.SelfAttention.relative_attention_bias.weight",
     "decoder.layers.*", T5Bias<false>},
    {"longt5",
     "encoder.block.0.layer.0.LocalSelfAttention.relative_attention_bias."
     "weight",
     "encoder", T5Bias<true>},
    {"longt5",
     "encoder.block.0.layer.0.TransientGlobalSelfAttention."
     "relative_attention_bias.weight",
     "encoder", T5Bias<true>},
    // Of positions counted in blocks.
    {"longt5",
     "encoder.block.0.layer.0.TransientGlobalSelfAttention."
     "global_relative_attention_bias.weight",
     "encoder.global", T5Bias<true>},
    {"longt5",
     "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "decoder", T5Bias<false>},
    {"bert", "embeddings.position_embeddings.weight", "positions",
     BertPositions},
    {"bert", "encoder.layer.*.attention.self.distance_embedding.weight",
     "encoder.layers.*", BertDistances},
    {"roberta", "embeddings.position_embeddings.weight", "positions",
     RobertaPositions},
    {"roberta", "encoder.layer.*.attention.self.distance_embedding.weight",
     "encoder.layers.*", BertDistances},
    {"gpt2", "wpe.weight", "positions", PositionsFrom<0>},
    {"opt", "decoder.embed_positions.weight", "positions", PositionsFrom<2>},
    {"bart", "encoder.embed_positions.weight", "encoder.positions",
     PositionsFrom<2>},
    {"bart", "decoder.embed_positions.weight", "decoder.positions",
     PositionsFrom<2>},
    // Its padding is 1 whatever the configuration says.
    {"mpnet", "embeddings.position_embeddings.weight", "positions",
     PositionsFrom<2>},
    {"mpnet", "encoder.relative_attention_bias.weight", "encoder", MpnetBias},
    {"swin", "embeddings.position_embeddings", "positions", PositionsFrom<0>},
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
    {"vit", "embeddings.position_embeddings", "positions", PositionsFrom<0>},
    {"deit", "embeddings.position_embeddings", "positions", PositionsFrom<0>},
    // Where they are learned, and not sines.
    {"detr", "position_embedding.row_embeddings.weight", "rows",
     PositionsFrom<0>},
    {"detr", "position_embedding.column_embeddings.weight", "columns",
     PositionsFrom<0>},
    {"detr", "query_position_embeddings.weight", "queries", PositionsFrom<0>},
    {"deberta-v2", "embeddings.position_embeddings.weight", "positions",
     PositionsFrom<0>},
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
  Segments site = Split(rule.site);
  auto star = site.begin();
  Match match;
  for (const std::string& wanted : pattern) {
    if (wanted == kAnyNumber) {
      uint32_t number = 0;
      if (!absl::SimpleAtoi(*segment, &number)) return std::nullopt;
      match.numbers.push_back(number);
      star = std::find(star, site.end(), kAnyNumber);
      *star = *segment;
    } else if (wanted != *segment) {
      return std::nullopt;
    }
    ++segment;
  }
  match.site = absl::StrJoin(site, ".");
  return match;
}

}  // namespace attnbias
