// SPDX-License-Identifier: Apache-2.0
#include "core/mount/checkpoint_rules.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

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

using Lengths = std::vector<int64_t>;
using FoundSpec = std::optional<EncodingSpec>;

// Shapes. What tensors of one kind have in common is under one name; where a
// model type calls a field otherwise, its defaults say so.

template <int64_t kMoreRows>
Lengths RowForEachPosition(ModelConfig& config, const Lengths& /*numbers*/) {
  return {config.Size("max_position_embeddings") + kMoreRows,
          config.Size("hidden_size")};
}

Lengths RowForEachDistance(ModelConfig& config, const Lengths& /*numbers*/) {
  return {2 * config.Size("max_position_embeddings") - 1,
          config.Size("hidden_size") / config.Size("num_attention_heads")};
}

Lengths HeadsOfBuckets(ModelConfig& config, const Lengths& /*numbers*/) {
  return {config.Size("relative_attention_num_buckets"),
          config.Size("num_attention_heads")};
}

// Patches of an image, downwards and across.
std::array<int64_t, 2> GridOf(ModelConfig& config) {
  const std::array<int64_t, 2> image = config.Sides("image_size");
  const std::array<int64_t, 2> patch = config.Sides("patch_size");
  return {image[0] / patch[0], image[1] / patch[1]};
}

template <int64_t kMoreRows>
Lengths RowForEachPatch(ModelConfig& config, const Lengths& /*numbers*/) {
  const auto [height, width] = GridOf(config);
  return {1, height * width + kMoreRows, config.Size("hidden_size")};
}

// Swin's hidden_size is the last stage's; its positions are the first's.
template <int64_t kMoreRows>
Lengths RowForEachPatchOfSwin(ModelConfig& config, const Lengths& /*numbers*/) {
  const auto [height, width] = GridOf(config);
  return {1, height * width + kMoreRows, config.Size("embed_dim")};
}

int64_t HeadsOfStage(ModelConfig& config, const Lengths& numbers) {
  return config.Element("num_attention_heads", numbers.front());
}

Lengths HeadsOfSwinsWindow(ModelConfig& config, const Lengths& numbers) {
  const int64_t side = 2 * config.Size("window_size") - 1;
  return {side * side, HeadsOfStage(config, numbers)};
}

constexpr int64_t kSwinV2Hidden = 512;

Lengths SwinV2HiddenWeight(ModelConfig& /*config*/, const Lengths& /*n*/) {
  return {kSwinV2Hidden, 2};
}

Lengths SwinV2HiddenBias(ModelConfig& /*config*/, const Lengths& /*n*/) {
  return {kSwinV2Hidden};
}

Lengths SwinV2OutputWeight(ModelConfig& config, const Lengths& numbers) {
  return {HeadsOfStage(config, numbers), kSwinV2Hidden};
}

// And three rows of the class token.
Lengths HeadsOfBeitsWindow(ModelConfig& config, const Lengths& /*numbers*/) {
  const auto [height, width] = GridOf(config);
  return {(2 * height - 1) * (2 * width - 1) + 3,
          config.Size("num_attention_heads")};
}

Lengths HalfOfAPixel(ModelConfig& config, const Lengths& /*numbers*/) {
  return {50, config.Size("hidden_size") / 2};
}

Lengths RowForEachQuery(ModelConfig& config, const Lengths& /*numbers*/) {
  return {config.Size("num_queries"), config.Size("hidden_size")};
}

Lengths DebertasPositions(ModelConfig& config, const Lengths& /*numbers*/) {
  return {config.Size("max_position_embeddings"),
          config.Size("embedding_size")};
}

struct DebertaReach {
  int64_t buckets = 0;
  int64_t distance = 0;
};

DebertaReach DebertaReachOf(ModelConfig& config) {
  const int64_t buckets = config.Integer("position_buckets");
  const int64_t distance = config.Integer("max_relative_positions");
  return {std::max<int64_t>(buckets, 0),
          distance >= 1 ? distance : config.Size("max_position_embeddings")};
}

Lengths DebertasDistances(ModelConfig& config, const Lengths& /*numbers*/) {
  const auto [buckets, distance] = DebertaReachOf(config);
  return {2 * (buckets > 0 ? buckets : distance), config.Size("hidden_size")};
}

// Uses.

// Position p is row p + kFirstRow. No spec says padding_idx: torch's leaves the
// row out of training, and answers with what the row holds. It is at the
// position before the first.
template <int64_t kFirstRow>
FoundSpec PositionsFrom(const Site& site, ModelConfig& /*config*/) {
  return LearnedAbsoluteSpec{.table = site.table(), .offset = kFirstRow};
}

// Before transformers 5 a model could have distances in place of positions,
// whose table it then kept and did not add.
bool AddsPositions(ModelConfig& config) {
  return config.String("position_embedding_type", "absolute") == "absolute";
}

FoundSpec BertPositions(const Site& site, ModelConfig& config) {
  if (!AddsPositions(config)) return std::nullopt;
  return PositionsFrom<0>(site, config);
}

FoundSpec RobertaPositions(const Site& site, ModelConfig& config) {
  if (!AddsPositions(config)) return std::nullopt;
  const int64_t padding = config.Integer("pad_token_id");
  const int64_t last = site.table().rows() - 1;
  if (padding < -1 || padding >= last) {
    config.Refuse("pad_token_id", absl::StrCat(padding),
                  absl::StrCat("an integer in [-1, ", last - 1,
                               "], a row before the last"));
  }
  return LearnedAbsoluteSpec{.table = site.table(), .offset = padding + 1};
}

// One vector for each distance, query - key, that the positions can have.
FoundSpec BertDistances(const Site& site, ModelConfig& /*config*/) {
  const int64_t reach = site.table().rows() / 2;
  return ShawSpec{.table = site.table(),
                  .left = reach,
                  .right = reach,
                  .beyond = BeyondReach::kRefuse,
                  .sign = RelativeSign::kQueryMinusKey};
}

T5Spec T5Of(const Table& table, int64_t max_distance, bool bidirectional) {
  return {.num_heads = table.columns(),
          .num_buckets = table.rows(),
          .max_distance = max_distance,
          .bidirectional = bidirectional,
          .table = table,
          // torch's logarithm chose the buckets in training.
          .bucket_rule = BucketRule::kFloat32Log};
}

template <bool kBidirectional>
FoundSpec T5Bias(const Site& site, ModelConfig& config) {
  return T5Of(site.table(), config.Integer("relative_attention_max_distance"),
              kBidirectional);
}

// Its code computes 32 buckets whatever number the table was made for.
FoundSpec MpnetBias(const Site& site, ModelConfig& /*config*/) {
  if (site.table().rows() != 32) return std::nullopt;
  return T5Of(site.table(), /*max_distance=*/128, /*bidirectional=*/true);
}

// The indices of the rows that pairs take.
FoundSpec DebertaIndices(const Site& /*site*/, ModelConfig& config) {
  const auto [buckets, distance] = DebertaReachOf(config);
  DebertaSpec spec{.bucket_size = buckets, .max_position = distance};
  if (spec.bucket_size != 0) {
    spec.edge = DebertaEdge::kHf;
    spec.bucket_rule = BucketRule::kFloat32Log;
  }
  return spec;
}

// Where a stage has fewer tokens than a window, the table is a whole window's
// nevertheless.
FoundSpec SwinBias(const Site& site, ModelConfig& config) {
  const int64_t window = config.Size("window_size");
  return SwinSpec{.window_height = window,
                  .window_width = window,
                  .num_heads = site.table().columns(),
                  .table = site.table()};
}

// A window is no larger than its stage, which has half the side of the stage
// before; where height and width differ, it is a square of what the height
// leaves.
FoundSpec SwinV2Bias(const Site& site, ModelConfig& config) {
  if (site.tables.size() < 3) return std::nullopt;
  const int64_t stage = site.numbers.front();
  const int64_t height = GridOf(config)[0];
  const int64_t window =
      std::min(config.Size("window_size"), stage < 63 ? height >> stage : 0);
  const Table& output_weight = site.tables.at("mlp.2.weight");
  SwinV2Spec spec{.window_height = window,
                  .window_width = window,
                  .num_heads = output_weight.rows(),
                  .hidden_weight = site.tables.at("mlp.0.weight"),
                  .hidden_bias = site.tables.at("mlp.0.bias"),
                  .output_weight = output_weight};
  const int64_t pretrained = config.Element("pretrained_window_sizes", stage);
  if (pretrained > 0) {
    spec.pretrained_window_height = pretrained;
    spec.pretrained_window_width = pretrained;
  }
  return spec;
}

// The table of a grid that is not square is read with its sides exchanged and
// resampled: no row of the answer is one of the table's.
FoundSpec BeitBias(const Site& site, ModelConfig& config) {
  const auto [height, width] = GridOf(config);
  if (height != width) return std::nullopt;
  return BeitSpec{.window_height = height,
                  .window_width = width,
                  .num_heads = site.table().columns(),
                  .table = site.table()};
}

// Those of a grid that is not square are resampled, too.
FoundSpec BeitPositions(const Site& site, ModelConfig& config) {
  const auto [height, width] = GridOf(config);
  if (height != width) return std::nullopt;
  return PositionsFrom<0>(site, config);
}

constexpr std::string_view kAnyNumber = "*";

constexpr Rule kRules[] = {
    {"t5",
     "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "encoder", HeadsOfBuckets, T5Bias<true>},
    {"t5",
     "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "decoder", HeadsOfBuckets, T5Bias<false>},
    {"mt5",
     "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "encoder", HeadsOfBuckets, T5Bias<true>},
    {"mt5",
     "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "decoder", HeadsOfBuckets, T5Bias<false>},
    {"umt5",
     "encoder.block.*.layer.0.SelfAttention.relative_attention_bias.weight",
     "encoder.layers.*", HeadsOfBuckets, T5Bias<true>},
    {"umt5",
     "decoder.block.*.layer.0.SelfAttention.relative_attention_bias.weight",
     "decoder.layers.*", HeadsOfBuckets, T5Bias<false>},
    {"longt5",
     "encoder.block.0.layer.0.LocalSelfAttention.relative_attention_bias."
     "weight",
     "encoder", HeadsOfBuckets, T5Bias<true>},
    {"longt5",
     "encoder.block.0.layer.0.TransientGlobalSelfAttention."
     "relative_attention_bias.weight",
     "encoder", HeadsOfBuckets, T5Bias<true>},
    // Of positions counted in blocks.
    {"longt5",
     "encoder.block.0.layer.0.TransientGlobalSelfAttention."
     "global_relative_attention_bias.weight",
     "encoder.global", HeadsOfBuckets, T5Bias<true>},
    {"longt5",
     "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "decoder", HeadsOfBuckets, T5Bias<false>},
    {"bert", "embeddings.position_embeddings.weight", "positions",
     RowForEachPosition<0>, BertPositions},
    {"bert", "encoder.layer.*.attention.self.distance_embedding.weight",
     "encoder.layers.*", RowForEachDistance, BertDistances},
    {"roberta", "embeddings.position_embeddings.weight", "positions",
     RowForEachPosition<0>, RobertaPositions},
    {"roberta", "encoder.layer.*.attention.self.distance_embedding.weight",
     "encoder.layers.*", RowForEachDistance, BertDistances},
    {"gpt2", "wpe.weight", "positions", RowForEachPosition<0>,
     PositionsFrom<0>},
    {"opt", "decoder.embed_positions.weight", "positions",
     RowForEachPosition<2>, PositionsFrom<2>},
    {"bart", "encoder.embed_positions.weight", "encoder.positions",
     RowForEachPosition<2>, PositionsFrom<2>},
    {"bart", "decoder.embed_positions.weight", "decoder.positions",
     RowForEachPosition<2>, PositionsFrom<2>},
    // Its padding is 1 whatever the configuration says.
    {"mpnet", "embeddings.position_embeddings.weight", "positions",
     RowForEachPosition<0>, PositionsFrom<2>},
    {"mpnet", "encoder.relative_attention_bias.weight", "encoder",
     HeadsOfBuckets, MpnetBias},
    {"swin", "embeddings.position_embeddings", "positions",
     RowForEachPatchOfSwin<0>, PositionsFrom<0>},
    {"swin",
     "encoder.layers.*.blocks.*.attention.self.relative_position_bias_table",
     "encoder.layers.*.blocks.*", HeadsOfSwinsWindow, SwinBias},
    // One row more than there are tokens: the sum of the two fails.
    {"swinv2", "embeddings.position_embeddings", "positions",
     RowForEachPatchOfSwin<1>, nullptr},
    {"swinv2",
     "encoder.layers.*.blocks.*.attention.self.continuous_position_bias_mlp.0."
     "weight",
     "encoder.layers.*.blocks.*", SwinV2HiddenWeight, SwinV2Bias,
     "mlp.0.weight"},
    {"swinv2",
     "encoder.layers.*.blocks.*.attention.self.continuous_position_bias_mlp.0."
     "bias",
     "encoder.layers.*.blocks.*", SwinV2HiddenBias, SwinV2Bias, "mlp.0.bias"},
    {"swinv2",
     "encoder.layers.*.blocks.*.attention.self.continuous_position_bias_mlp.2."
     "weight",
     "encoder.layers.*.blocks.*", SwinV2OutputWeight, SwinV2Bias,
     "mlp.2.weight"},
    {"beit", "embeddings.position_embeddings", "positions", RowForEachPatch<1>,
     BeitPositions},
    {"beit", "encoder.relative_position_bias.relative_position_bias_table",
     "encoder", HeadsOfBeitsWindow, BeitBias},
    {"beit",
     "encoder.layer.*.attention.attention.relative_position_bias."
     "relative_position_bias_table",
     "encoder.layers.*", HeadsOfBeitsWindow, BeitBias},
    {"vit", "embeddings.position_embeddings", "positions", RowForEachPatch<1>,
     PositionsFrom<0>},
    {"deit", "embeddings.position_embeddings", "positions", RowForEachPatch<2>,
     PositionsFrom<0>},
    // Where they are learned, and not sines.
    {"detr", "position_embedding.row_embeddings.weight", "rows", HalfOfAPixel,
     PositionsFrom<0>},
    {"detr", "position_embedding.column_embeddings.weight", "columns",
     HalfOfAPixel, PositionsFrom<0>},
    {"detr", "query_position_embeddings.weight", "queries", RowForEachQuery,
     PositionsFrom<0>},
    {"deberta-v2", "embeddings.position_embeddings.weight", "positions",
     DebertasPositions, PositionsFrom<0>},
    {"deberta-v2", "encoder.rel_embeddings.weight", "encoder",
     DebertasDistances, DebertaIndices},
};

// What transformers' class of a model type takes where config.json says
// nothing: a number, a list, or the value of the field that is named.
struct Defaults {
  std::string_view model_type;
  const char* fields;
};

constexpr char kVitDefaults[] = R"({
  "image_size": 224, "patch_size": 16, "hidden_size": 768,
  "num_attention_heads": 12})";
constexpr char kSwinDefaults[] = R"({
  "image_size": 224, "patch_size": 4, "embed_dim": 96,
  "num_attention_heads": "num_heads", "num_heads": [3, 6, 12, 24],
  "window_size": 7, "pretrained_window_sizes": [0, 0, 0, 0]})";
constexpr char kT5Defaults[] = R"({
  "num_attention_heads": "num_heads", "num_heads": 8,
  "relative_attention_num_buckets": 32,
  "relative_attention_max_distance": 128})";
constexpr char kMt5Defaults[] = R"({
  "num_attention_heads": "num_heads", "num_heads": 6,
  "relative_attention_num_buckets": 32,
  "relative_attention_max_distance": 128})";

constexpr Defaults kDefaults[] = {
    {"t5", kT5Defaults},
    {"longt5", kT5Defaults},
    {"mt5", kMt5Defaults},
    {"umt5", kMt5Defaults},
    {"bert", R"({"max_position_embeddings": 512, "hidden_size": 768,
                 "num_attention_heads": 12})"},
    {"roberta", R"({"max_position_embeddings": 512, "hidden_size": 768,
                    "num_attention_heads": 12, "pad_token_id": 1})"},
    {"mpnet", R"({"max_position_embeddings": 512, "hidden_size": 768,
                  "num_attention_heads": 12,
                  "relative_attention_num_buckets": 32})"},
    {"gpt2", R"({"max_position_embeddings": "n_positions",
                 "n_positions": 1024, "hidden_size": "n_embd",
                 "n_embd": 768})"},
    {"opt", R"({"max_position_embeddings": 2048, "hidden_size": 768})"},
    {"bart", R"({"max_position_embeddings": 1024, "hidden_size": "d_model",
                 "d_model": 1024})"},
    {"swin", kSwinDefaults},
    {"swinv2", kSwinDefaults},
    {"beit", kVitDefaults},
    {"vit", kVitDefaults},
    {"deit", kVitDefaults},
    {"detr", R"({"num_queries": 100, "hidden_size": "d_model",
                 "d_model": 256})"},
    {"deberta-v2", R"({"max_position_embeddings": 512,
                       "max_relative_positions": -1, "position_buckets": -1,
                       "embedding_size": "hidden_size",
                       "hidden_size": 1536})"},
};

constexpr const Defaults* DefaultsOf(std::string_view model_type) {
  return std::ranges::find(kDefaults, model_type, &Defaults::model_type);
}

static_assert(std::ranges::all_of(kRules, [](const Rule& rule) {
  return DefaultsOf(rule.model_type) != std::end(kDefaults);
}));

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
  config.SetDefaults(nlohmann::json::parse(DefaultsOf(model_type)->fields));
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
