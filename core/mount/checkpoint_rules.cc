// SPDX-License-Identifier: Apache-2.0
#include "core/mount/checkpoint_rules.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/errors.h"
#include "core/mount/json_file.h"
#include "core/request/rules.h"

namespace attnbias {
namespace {

using nlohmann::json;

bool IsInteger(const json& value) {
  return value.is_number_integer() && std::abs(value.get<double>()) <= ModelConfig::kMaxInteger;
}

bool IsSize(const json& value) { return IsInteger(value) && value.get<int64_t>() > 0; }

// Returns the field whose value serves as the default, or "" for other defaults.
std::string FieldNamedBy(const json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  return text.starts_with('=') ? text.substr(1) : "";
}

}  // namespace

std::string ModelConfig::String(const char* field, std::string_view otherwise) {
  const auto [name, value] = Find(field);
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_null()) Refuse(name, Excerpt(value), "a string");
  return std::string(otherwise);
}

int64_t ModelConfig::Integer(const char* field, int64_t least) {
  const auto [name, value] = Find(field);
  if (IsInteger(value) && value.get<int64_t>() >= least) return value.get<int64_t>();
  Refuse(name, Excerpt(value),
         least > 0 ? "an integer in [1, 2^30]" : "an integer in [-2^30, 2^30]");
  return 1;
}

int64_t ModelConfig::Element(const char* field, size_t index) {
  const auto [name, value] = Find(field);
  if (value.is_array() && index < value.size() && IsInteger(value[index])) {
    return value[index].get<int64_t>();
  }
  Refuse(name, Excerpt(value), absl::StrCat("a list with an integer at index ", index));
  return 1;
}

std::array<int64_t, 2> ModelConfig::Sides(const char* field) {
  const auto [name, value] = Find(field);
  const json sides = value.is_array() ? value : json::array({value, value});
  if (sides.size() == 2 && IsSize(sides[0]) && IsSize(sides[1])) {
    return {sides[0].get<int64_t>(), sides[1].get<int64_t>()};
  }
  Refuse(name, Excerpt(value), "a positive integer, or a list of two");
  return {1, 1};
}

std::string ModelConfig::TakeReads() { return absl::StrJoin(std::exchange(reads_, {}), ", "); }

void ModelConfig::Refuse(std::string_view field, std::string_view got, std::string_view want) {
  if (!status_.ok()) return;
  status_ = Invalid(kFile, ": ", std::string(field), ": got ", std::string(got), ", want ",
                    std::string(want));
}

ModelConfig::Found ModelConfig::Find(const char* field) {
  static const auto* const kAbsent = new json();
  for (std::string name = field;;) {
    const auto given = content_.find(name);
    const auto otherwise = defaults_.find(name);
    const std::string other = otherwise == defaults_.end() ? "" : FieldNamedBy(*otherwise);
    // A null counts as unset if another field then provides the value.
    if (given != content_.end() && (!given->is_null() || other.empty())) {
      reads_.push_back(absl::StrCat(name, " = ", Excerpt(*given)));
      return {name, *given};
    }
    if (otherwise == defaults_.end()) return {name, *kAbsent};
    if (other.empty()) {
      reads_.push_back(absl::StrCat(name, " = ", Excerpt(*otherwise), " by default"));
      return {name, *otherwise};
    }
    name = other;
  }
}

namespace {

using FoundSpec = std::optional<v1::TensorSpec>;

// Returns the number of patches in an image, vertically and horizontally.
std::array<int64_t, 2> GridOf(ModelConfig& config) {
  const std::array<int64_t, 2> image = config.Sides("image_size");
  const std::array<int64_t, 2> patch = config.Sides("patch_size");
  return {image[0] / patch[0], image[1] / patch[1]};
}

// Returns DeBERTa's number of buckets (0 if it has none) and its maximum distance.
std::array<int64_t, 2> DebertaReachOf(ModelConfig& config) {
  const int64_t buckets = config.Integer("position_buckets");
  const int64_t distance = config.Integer("max_relative_positions");
  return {std::max<int64_t>(buckets, 0),
          distance >= 1 ? distance : config.Size("max_position_embeddings")};
}

// Returns the value of one term in a chain that defines a length: a number, a field, or a quantity
// derived from several fields.
int64_t ValueOf(const std::string& term, ModelConfig& config, const std::vector<int64_t>& numbers) {
  int64_t number = 0;
  if (absl::SimpleAtoi(term, &number)) return number;
  if (term == "patches") {
    const auto [height, width] = GridOf(config);
    return height * width;
  }
  if (term == "grid_displacements") {
    const auto [height, width] = GridOf(config);
    return (2 * height - 1) * (2 * width - 1);
  }
  if (term == "window_displacements") {
    const int64_t side = 2 * config.Size("window_size") - 1;
    return side * side;
  }
  if (term == "heads_of_stage") return config.Element("num_attention_heads", numbers.front());
  if (term == "deberta_reach") {
    const auto [buckets, distance] = DebertaReachOf(config);
    return buckets > 0 ? buckets : distance;
  }
  return config.Size(term.c_str());
}

// Returns `number` for a 32-bit field, or -1, which no field allows, if it does not fit.
int32_t Field32(int64_t number) {
  const auto narrow = static_cast<int32_t>(number);
  return narrow == number ? narrow : -1;
}

// Position p is row p + first_row. No spec sets padding_idx: torch excludes that row from training
// but still returns its values. The excluded row is at the position before the first.
v1::TensorSpec PositionsFrom(const Site& site, int64_t first_row) {
  v1::TensorSpec spec;
  *spec.mutable_learned_absolute()->mutable_table() = Tables::RefTo(site.table());
  spec.mutable_learned_absolute()->set_offset(first_row);
  return spec;
}

template <int64_t kFirstRow>
FoundSpec PositionsAt(const Site& site, ModelConfig& /*config*/) {
  return PositionsFrom(site, kFirstRow);
}

// Before transformers 5 a model could use distances instead of positions; it then kept the position
// table but did not add it.
bool AddsPositions(ModelConfig& config) {
  return config.String("position_embedding_type", "absolute") == "absolute";
}

FoundSpec BertPositions(const Site& site, ModelConfig& config) {
  if (!AddsPositions(config)) return std::nullopt;
  return PositionsFrom(site, 0);
}

FoundSpec RobertaPositions(const Site& site, ModelConfig& config) {
  if (!AddsPositions(config)) return std::nullopt;
  const int64_t padding = config.Integer("pad_token_id");
  const int64_t last = site.table().rows() - 1;
  if (padding < -1 || padding >= last) {
    config.Refuse("pad_token_id", absl::StrCat(padding),
                  absl::StrCat("an integer in [-1, ", last - 1, "], a row before the last"));
  }
  return PositionsFrom(site, padding + 1);
}

// One vector for each possible distance (query - key).
FoundSpec BertDistances(const Site& site, ModelConfig& /*config*/) {
  const int64_t reach = site.table().rows() / 2;
  v1::TensorSpec spec;
  v1::LearnedRelative& distances = *spec.mutable_learned_relative();
  *distances.mutable_vectors() = Tables::RefTo(site.table());
  distances.set_left(reach);
  distances.set_right(reach);
  distances.set_beyond(v1::BEYOND_REACH_REFUSE);
  distances.set_sign(v1::RELATIVE_SIGN_QUERY_MINUS_KEY);
  return spec;
}

v1::TensorSpec T5Of(const Site& site, int64_t max_distance, bool bidirectional) {
  v1::TensorSpec spec;
  v1::T5& t5 = *spec.mutable_t5();
  t5.set_num_buckets(Field32(site.table().rows()));
  t5.set_max_distance(Field32(max_distance));
  t5.set_bidirectional(bidirectional);
  *t5.mutable_table() = Tables::RefTo(site.table());
  // torch's logarithm determined the buckets in training.
  t5.set_bucket_rule(v1::BUCKET_RULE_FLOAT32_LOG);
  return spec;
}

template <bool kBidirectional>
FoundSpec T5Bias(const Site& site, ModelConfig& config) {
  return T5Of(site, config.Integer("relative_attention_max_distance"), kBidirectional);
}

// MPNet's code computes 32 buckets regardless of the number of rows in the table.
FoundSpec MpnetBias(const Site& site, ModelConfig& /*config*/) {
  if (site.table().rows() != 32) return std::nullopt;
  return T5Of(site, /*max_distance=*/128, /*bidirectional=*/true);
}

// The indices of the rows that pairs use.
FoundSpec DebertaIndices(const Site& /*site*/, ModelConfig& config) {
  const auto [buckets, distance] = DebertaReachOf(config);
  v1::TensorSpec spec;
  v1::Deberta& deberta = *spec.mutable_deberta();
  deberta.set_bucket_size(Field32(buckets));
  deberta.set_max_position(Field32(distance));
  if (buckets != 0) {
    deberta.set_edge(v1::DEBERTA_EDGE_HF);
    deberta.set_bucket_rule(v1::BUCKET_RULE_FLOAT32_LOG);
  }
  return spec;
}

v1::TensorSpec WindowOf(const Site& site, int64_t height, int64_t width) {
  v1::TensorSpec spec;
  spec.mutable_grid_relative()->add_window(Field32(height));
  spec.mutable_grid_relative()->add_window(Field32(width));
  *spec.mutable_grid_relative()->mutable_table() = Tables::RefTo(site.table());
  return spec;
}

// The table covers a whole window even if a stage has fewer tokens.
FoundSpec SwinBias(const Site& site, ModelConfig& config) {
  const int64_t window = config.Size("window_size");
  return WindowOf(site, window, window);
}

// A window is at most as large as its stage, whose side is half that of the previous stage. If
// height and width differ, the window is a square determined by the height.
FoundSpec SwinV2Bias(const Site& site, ModelConfig& config) {
  if (site.tables.size() < 3) return std::nullopt;
  const int64_t stage = site.numbers.front();
  const int64_t height = GridOf(config)[0];
  const int32_t window =
      Field32(std::min(config.Size("window_size"), stage < 63 ? height >> stage : 0));
  v1::TensorSpec spec;
  v1::MlpBias& mlp = *spec.mutable_mlp_bias();
  v1::MlpLayer& hidden = *mlp.add_layers();
  *hidden.mutable_weight() = Tables::RefTo(site.tables.at("mlp.0.weight"));
  *hidden.mutable_bias() = Tables::RefTo(site.tables.at("mlp.0.bias"));
  *mlp.add_layers()->mutable_weight() = Tables::RefTo(site.tables.at("mlp.2.weight"));
  mlp.set_activation(v1::ACTIVATION_RELU);
  mlp.set_coordinates(v1::COORDINATES_LOG2_NORMALIZED);
  mlp.set_output(v1::MLP_OUTPUT_SIGMOID_16);
  const int32_t pretrained = Field32(config.Element("pretrained_window_sizes", stage));
  for (int side = 0; side < 2; ++side) {
    mlp.add_window(window);
    if (pretrained > 0) mlp.add_pretrained_window(pretrained);
  }
  return spec;
}

// BEiT swaps the sides of a non-square grid, and then resamples the table.
FoundSpec BeitBias(const Site& site, ModelConfig& config) {
  const auto [height, width] = GridOf(config);
  v1::TensorSpec spec = WindowOf(site, height, width);
  v1::GridRelative& bias = *spec.mutable_grid_relative();
  bias.set_class_token(true);
  if (height != width) {
    bias.mutable_resample()->add_source(2 * width - 1);
    bias.mutable_resample()->add_source(2 * height - 1);
  }
  return spec;
}

// Positions for a non-square grid are resampled from a square with the same number of positions, if
// one exists.
FoundSpec BeitPositions(const Site& site, ModelConfig& config) {
  v1::TensorSpec spec = PositionsFrom(site, 0);
  const auto [height, width] = GridOf(config);
  if (height == width) return spec;
  const int64_t patches = site.table().rows() - 1;
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(patches)));
  if (side * side != patches) return std::nullopt;
  v1::Resample& resample = *spec.mutable_learned_absolute()->mutable_resample();
  for (const int64_t target : {height, width}) {
    resample.add_source(side);
    resample.add_target(target);
  }
  resample.set_prefix_rows(1);
  resample.set_filter(v1::FILTER_CUBIC);
  return spec;
}

constexpr std::string_view kAnyNumber = "*";

// Returns the function that the registry names.
Use UseNamed(std::string_view name) {
  static const auto& uses = *new std::map<std::string_view, Use>{
      // transformers itself cannot use the table.
      {"", nullptr},
      {"positions", PositionsAt<0>},
      {"positions from 2", PositionsAt<2>},
      {"positions unless relative", BertPositions},
      {"positions after padding", RobertaPositions},
      {"distances", BertDistances},
      {"t5 encoder", T5Bias<true>},
      {"t5 decoder", T5Bias<false>},
      {"mpnet", MpnetBias},
      {"swin", SwinBias},
      {"swinv2", SwinV2Bias},
      {"beit", BeitBias},
      {"beit positions", BeitPositions},
      {"deberta", DebertaIndices},
  };
  return uses.at(name);
}

// The registry of model types, which the Python client also reads. CMake embeds the bytes of
// client/python/src/attnbias/_models/models.json, a JSON object.
constexpr char kRegisterBytes[] = {
#include "core/mount/model_register.inc"
};

const json& Register() {
  static const auto* const kRegister =
      new json(json::parse(std::begin(kRegisterBytes), std::end(kRegisterBytes)));
  return *kRegister;
}

using Segments = std::vector<std::string>;

Segments Split(std::string_view name) {
  return absl::StrSplit(absl::string_view(name.data(), name.size()), '.');
}

}  // namespace

std::vector<std::string> MountedModelTypes() {
  std::vector<std::string> known;
  for (const auto& [name, model] : Register()["models"].items()) {
    if (model.contains("tables")) known.push_back(name);
  }
  return known;
}

absl::StatusOr<std::vector<Rule>> RulesFor(ModelConfig& config) {
  const std::string model_type = config.String("model_type", "");
  const json& models = Register()["models"];
  const auto model = models.find(model_type);
  if (model == models.end() || !model->contains("tables")) {
    config.Refuse("model_type", absl::StrCat("'", model_type, "'"),
                  absl::StrCat("one of ", absl::StrJoin(MountedModelTypes(), ", ")));
    return config.status();
  }
  config.SetDefaults((*model)["defaults"]);
  std::vector<Rule> rules;
  for (const json& row : Register()["tables"].at((*model)["tables"])) {
    rules.push_back({.model_type = model_type,
                     .tensor = row["tensor"],
                     .site = row["place"],
                     .shape = Register()["shapes"].at(row["shape"]),
                     .use = UseNamed(row.value("use", "")),
                     .part = row.value("part", "")});
  }
  return rules;
}

std::vector<int64_t> ShapeOf(const Rule& rule, ModelConfig& config,
                             const std::vector<int64_t>& numbers) {
  std::vector<int64_t> shape;
  for (const std::string& length : rule.shape) {
    const std::vector<std::string> words = absl::StrSplit(length, ' ');
    int64_t& value = shape.emplace_back(ValueOf(words[0], config, numbers));
    for (size_t i = 1; i < words.size(); i += 2) {
      const int64_t operand = ValueOf(words[i + 1], config, numbers);
      if (words[i] == "+") value += operand;
      if (words[i] == "-") value -= operand;
      if (words[i] == "*") value *= operand;
      if (words[i] == "/") value /= operand;
    }
  }
  return shape;
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
