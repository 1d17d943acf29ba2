// SPDX-License-Identifier: Apache-2.0
#include "core/table/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/encoding/make_encoding.h"

namespace attnbias {
namespace {

using nlohmann::json;

constexpr char kConfigFile[] = "config.json";
constexpr char kModelFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr std::string_view kAnyNumber = "*";

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// A field of config.json, or what transformers takes without it.
absl::StatusOr<int64_t> Integer(const json& config, const char* field,
                                int64_t default_value) {
  const auto found = config.find(field);
  if (found == config.end()) return default_value;
  if (found->is_number_integer()) return found->get<int64_t>();
  return Invalid(kConfigFile, ": ", field, ": got ", found->dump(),
                 ", want an integer");
}

// How an encoding uses a table of a checkpoint with this config.json.
using Use = absl::StatusOr<EncodingSpec> (*)(const json& config,
                                             const Table& table);

absl::StatusOr<EncodingSpec> UseAsT5(const json& config, const Table& table,
                                     int64_t max_distance, bool bidirectional) {
  const absl::StatusOr<int64_t> num_buckets =
      Integer(config, "relative_attention_num_buckets", table.rows());
  ATTNBIAS_RETURN_IF_ERROR(num_buckets.status());
  T5Spec spec{.num_heads = table.columns(),
              .num_buckets = *num_buckets,
              .max_distance = max_distance,
              .bidirectional = bidirectional,
              .table = table};
  ATTNBIAS_RETURN_IF_ERROR(MakeEncoding(spec, Output()).status());
  return spec;
}

template <bool bidirectional>
absl::StatusOr<EncodingSpec> T5Bias(const json& config, const Table& table) {
  const absl::StatusOr<int64_t> max_distance =
      Integer(config, "relative_attention_max_distance", 128);
  ATTNBIAS_RETURN_IF_ERROR(max_distance.status());
  return UseAsT5(config, table, *max_distance, bidirectional);
}

// MPNet has T5's buckets and no field for the distance.
absl::StatusOr<EncodingSpec> MpnetBias(const json& config, const Table& table) {
  return UseAsT5(config, table, 128, true);
}

// A tensor of a model type. "*" stands for a layer's number, in the tensor's
// name and in the table's; a tensor may have further segments in front.
struct Rule {
  std::string_view model_type;
  std::string_view tensor;
  std::string_view table;
  Use use = nullptr;  // none: only the numbers are known
};

// Names as transformers 5.23 and earlier save them.
constexpr Rule kRules[] = {
    {"t5",
     "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "encoder", &T5Bias<true>},
    {"t5",
     "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "decoder", &T5Bias<false>},
    {"mt5",
     "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "encoder", &T5Bias<true>},
    {"mt5",
     "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "decoder", &T5Bias<false>},
    {"umt5",
     "encoder.block.*.layer.0.SelfAttention.relative_attention_bias.weight",
     "encoder.layers.*", &T5Bias<true>},
    {"umt5",
     "decoder.block.*.layer.0.SelfAttention.relative_attention_bias.weight",
     "decoder.layers.*", &T5Bias<false>},
    {"longt5",
     "encoder.block.0.layer.0.LocalSelfAttention.relative_attention_bias."
     "weight",
     "encoder", &T5Bias<true>},
    {"longt5",
     "encoder.block.0.layer.0.TransientGlobalSelfAttention."
     "relative_attention_bias.weight",
     "encoder", &T5Bias<true>},
    // Of positions counted in blocks.
    {"longt5",
     "encoder.block.0.layer.0.TransientGlobalSelfAttention."
     "global_relative_attention_bias.weight",
     "encoder.global", &T5Bias<true>},
    {"longt5",
     "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "decoder", &T5Bias<false>},
    {"bert", "embeddings.position_embeddings.weight", "positions"},
    {"roberta", "embeddings.position_embeddings.weight", "positions"},
    {"gpt2", "wpe.weight", "positions"},
    {"opt", "decoder.embed_positions.weight", "positions"},
    {"bart", "encoder.embed_positions.weight", "encoder.positions"},
    {"bart", "decoder.embed_positions.weight", "decoder.positions"},
    {"mpnet", "embeddings.position_embeddings.weight", "positions"},
    {"mpnet", "encoder.relative_attention_bias.weight", "encoder", &MpnetBias},
    {"swin", "embeddings.position_embeddings", "positions"},
    {"swin",
     "encoder.layers.*.blocks.*.attention.self.relative_position_bias_table",
     "encoder.layers.*.blocks.*"},
    {"swinv2", "embeddings.position_embeddings", "positions"},
    {"swinv2",
     "encoder.layers.*.blocks.*.attention.self.continuous_position_bias_mlp.0."
     "weight",
     "encoder.layers.*.blocks.*.mlp.0.weight"},
    {"swinv2",
     "encoder.layers.*.blocks.*.attention.self.continuous_position_bias_mlp.0."
     "bias",
     "encoder.layers.*.blocks.*.mlp.0.bias"},
    {"swinv2",
     "encoder.layers.*.blocks.*.attention.self.continuous_position_bias_mlp.2."
     "weight",
     "encoder.layers.*.blocks.*.mlp.2.weight"},
    {"beit", "embeddings.position_embeddings", "positions"},
    {"beit", "encoder.relative_position_bias.relative_position_bias_table",
     "encoder"},
    {"beit",
     "encoder.layer.*.attention.attention.relative_position_bias."
     "relative_position_bias_table",
     "encoder.layers.*"},
    {"deberta-v2", "embeddings.position_embeddings.weight", "positions"},
    {"deberta-v2", "encoder.rel_embeddings.weight", "encoder"},
};

using Segments = std::vector<std::string>;

Segments Split(std::string_view name) {
  return absl::StrSplit(absl::string_view(name.data(), name.size()), '.');
}

bool IsNumber(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
}

// What a table is called that `rule` makes of the tensor `name`, or nothing.
std::optional<std::string> TableName(const Rule& rule,
                                     const std::string& name) {
  const Segments segments = Split(name);
  const Segments pattern = Split(rule.tensor);
  if (segments.size() < pattern.size()) return std::nullopt;
  auto segment = segments.end() - static_cast<int64_t>(pattern.size());
  Segments table = Split(rule.table);
  auto place = table.begin();
  for (const std::string& wanted : pattern) {
    if (wanted == kAnyNumber && IsNumber(*segment)) {
      place = std::find(place, table.end(), kAnyNumber);
      *place = *segment;
    } else if (wanted != *segment) {
      return std::nullopt;
    }
    ++segment;
  }
  return absl::StrJoin(table, ".");
}

absl::StatusOr<json> ReadJson(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  json content = json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (content.is_object()) return content;
  return Invalid(path, ": not a JSON object");
}

// The rules of one model type.
absl::StatusOr<std::vector<Rule>> RulesFor(const json& config) {
  const std::string model_type =
      config.contains("model_type") && config["model_type"].is_string()
          ? config["model_type"].get<std::string>()
          : "";
  std::vector<Rule> rules;
  std::vector<std::string> known;
  for (const Rule& rule : kRules) {
    if (rule.model_type == model_type) rules.push_back(rule);
    if (known.empty() || known.back() != rule.model_type) {
      known.emplace_back(rule.model_type);
    }
  }
  if (!rules.empty()) return rules;
  return Invalid(kConfigFile, ": model_type: got '", model_type,
                 "', want one of ", absl::StrJoin(known, ", "));
}

// The checkpoint's tensors, by file.
using Contents = std::map<std::string, std::vector<std::string>>;

absl::StatusOr<Contents> ReadIndex(const std::string& path) {
  const absl::StatusOr<json> index = ReadJson(path);
  ATTNBIAS_RETURN_IF_ERROR(index.status());
  const auto weight_map = index->find("weight_map");
  if (weight_map == index->end() || !weight_map->is_object()) {
    return Invalid(path, ": weight_map: want an object");
  }
  Contents contents;
  for (const auto& [tensor, file] : weight_map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    // A shard lies beside its index.
    if (name.empty() || std::filesystem::path(name).filename() != name) {
      return Invalid(path, ": weight_map: ", tensor, ": got ", file.dump(),
                     ", want a file's name");
    }
    contents[name].push_back(tensor);
  }
  return contents;
}

class Reader {
 public:
  Reader(std::string name, std::filesystem::path folder,
         TableSetBuilder* builder)
      : name_(std::move(name)),
        folder_(std::move(folder)),
        builder_(*builder) {}

  absl::Status Run() {
    absl::StatusOr<json> config = ReadJson(folder_ / kConfigFile);
    ATTNBIAS_RETURN_IF_ERROR(config.status());
    config_ = *std::move(config);
    absl::StatusOr<std::vector<Rule>> rules = RulesFor(config_);
    ATTNBIAS_RETURN_IF_ERROR(rules.status());
    rules_ = *std::move(rules);
    ATTNBIAS_RETURN_IF_ERROR(std::filesystem::exists(folder_ / kModelFile)
                                 ? AddWholeModel()
                                 : AddShards());
    if (found_ > 0) return absl::OkStatus();
    return Invalid(
        folder_.string(), ": none of the tensors that a ",
        std::string(rules_.front().model_type), " has: ",
        absl::StrJoin(rules_, ", ", [](std::string* out, const Rule& rule) {
          out->append(rule.tensor);
        }));
  }

 private:
  absl::Status AddWholeModel() {
    absl::StatusOr<SafetensorsFile> file =
        SafetensorsFile::Open(folder_ / kModelFile);
    ATTNBIAS_RETURN_IF_ERROR(file.status());
    for (const SafetensorsEntry& entry : file->entries()) {
      ATTNBIAS_RETURN_IF_ERROR(AddIfWanted(*file, entry));
    }
    return absl::OkStatus();
  }

  // Opens only the shards that something is wanted of.
  absl::Status AddShards() {
    const absl::StatusOr<Contents> contents = ReadIndex(folder_ / kIndexFile);
    ATTNBIAS_RETURN_IF_ERROR(contents.status());
    for (const auto& [shard, tensors] : *contents) {
      if (std::none_of(tensors.begin(), tensors.end(),
                       [this](const std::string& t) { return IsWanted(t); })) {
        continue;
      }
      absl::StatusOr<SafetensorsFile> file =
          SafetensorsFile::Open(folder_ / shard);
      ATTNBIAS_RETURN_IF_ERROR(file.status());
      for (const std::string& tensor : tensors) {
        const SafetensorsEntry* entry = file->Find(tensor);
        if (entry == nullptr) {
          return Invalid(file->path(), ": has no tensor ", tensor, ", which ",
                         kIndexFile, " says it has");
        }
        ATTNBIAS_RETURN_IF_ERROR(AddIfWanted(*file, *entry));
      }
    }
    return absl::OkStatus();
  }

  bool IsWanted(const std::string& tensor) const {
    return std::any_of(rules_.begin(), rules_.end(), [&](const Rule& rule) {
      return TableName(rule, tensor).has_value();
    });
  }

  absl::Status AddIfWanted(SafetensorsFile& file,
                           const SafetensorsEntry& entry) {
    for (const Rule& rule : rules_) {
      const std::optional<std::string> table = TableName(rule, entry.name);
      if (!table.has_value()) continue;
      const absl::StatusOr<MountedTable*> mounted =
          builder_.Add(absl::StrCat(name_, "/", *table), file, entry);
      ATTNBIAS_RETURN_IF_ERROR(mounted.status());
      ++found_;
      if (rule.use == nullptr) continue;
      absl::StatusOr<EncodingSpec> spec = rule.use(config_, (*mounted)->table);
      if (!spec.ok()) {
        return Invalid(file.path(), ":", entry.name, ": ",
                       spec.status().message());
      }
      (*mounted)->spec = *std::move(spec);
    }
    return absl::OkStatus();
  }

  const std::string name_;
  const std::filesystem::path folder_;
  TableSetBuilder& builder_;
  json config_;
  std::vector<Rule> rules_;
  int found_ = 0;
};

}  // namespace

absl::Status AddCheckpoint(const std::string& name, const std::string& folder,
                           TableSetBuilder& builder) {
  return Reader(name, folder, &builder).Run();
}

}  // namespace attnbias
