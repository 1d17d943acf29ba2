// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/errors.h"
#include "core/encoding/encoding.h"
#include "core/mount/checkpoint_rules.h"
#include "core/mount/json_file.h"
#include "core/mount/registry.h"

namespace attnbias {
namespace {

using nlohmann::json;

constexpr char kModelFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";

absl::StatusOr<json> ReadJson(const std::filesystem::path& folder, const char* file) {
  absl::StatusOr<json> content = ReadPythonJsonFile(folder / file, folder);
  if (!content.ok() || content->is_object()) return content;
  return Invalid((folder / file).string(), ": not a JSON object");
}

// The checkpoint's tensors, by file.
using Contents = std::map<std::string, std::vector<std::string>>;

absl::StatusOr<Contents> ReadIndex(const std::filesystem::path& folder) {
  ATTNBIAS_ASSIGN_OR_RETURN(const json index, ReadJson(folder, kIndexFile));
  const std::string path = folder / kIndexFile;
  const auto weight_map = index.find("weight_map");
  if (weight_map == index.end() || !weight_map->is_object()) {
    return Invalid(path, ": weight_map: want an object");
  }
  Contents contents;
  for (const auto& [tensor, file] : weight_map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    // A shard lies in the same folder as its index.
    if (name.empty() || std::filesystem::path(name).filename() != name) {
      return Invalid(path, ": weight_map: ", tensor, ": got ", Excerpt(file), ", want a file name");
    }
    contents[name].push_back(tensor);
  }
  return contents;
}

bool Exists(const std::filesystem::path& path) {
  std::error_code unreadable;
  return std::filesystem::exists(path, unreadable) || unreadable;
}

class Reader {
 public:
  Reader(std::string name, std::filesystem::path folder, json config, TableSetBuilder* builder)
      : name_(std::move(name)),
        folder_(std::move(folder)),
        config_(std::move(config)),
        builder_(*builder) {}

  absl::Status Read() {
    ATTNBIAS_ASSIGN_OR_RETURN(rules_, Located(folder_.string(), RulesFor(config_)));
    if (Exists(folder_ / kModelFile)) {
      ATTNBIAS_RETURN_IF_ERROR(AddWholeModel());
    } else if (Exists(folder_ / kIndexFile)) {
      ATTNBIAS_RETURN_IF_ERROR(AddShards());
    } else {
      return absl::NotFoundError(absl::StrCat(folder_.string(), ": got no weights, want ",
                                              kModelFile, ", or ", kIndexFile, " with its shards"));
    }
    if (users_.empty()) {
      return Invalid(folder_.string(), ": got none of the tensors of a ", rules_.front().model_type,
                     ": ", absl::StrJoin(rules_, ", ", [](std::string* out, const Rule& rule) {
                       out->append(rule.tensor);
                     }));
    }
    for (const auto& [site, user] : users_) {
      ATTNBIAS_RETURN_IF_ERROR(AddSpec(user));
    }
    return absl::OkStatus();
  }

 private:
  // How the model uses the tables at one site. Complete once all tensors have been read.
  struct User {
    Use use;
    Site site;
    std::vector<MountedTable*> tables;
  };

  absl::Status AddWholeModel() {
    ATTNBIAS_ASSIGN_OR_RETURN(SafetensorsFile file, OpenFile(kModelFile));
    for (const SafetensorsEntry& entry : file.entries()) {
      ATTNBIAS_RETURN_IF_ERROR(AddIfWanted(file, entry));
    }
    return absl::OkStatus();
  }

  // Opens only the shards that contain a needed tensor.
  absl::Status AddShards() {
    ATTNBIAS_ASSIGN_OR_RETURN(const Contents contents, ReadIndex(folder_));
    for (const auto& [shard, tensors] : contents) {
      const auto is_wanted = [this](const std::string& tensor) {
        return std::ranges::any_of(
            rules_, [&](const Rule& rule) { return MatchTensor(rule, tensor).has_value(); });
      };
      if (std::ranges::none_of(tensors, is_wanted)) continue;
      ATTNBIAS_ASSIGN_OR_RETURN(SafetensorsFile file, OpenFile(shard));
      for (const std::string& tensor : tensors) {
        const SafetensorsEntry* entry = file.Find(tensor);
        if (entry == nullptr) {
          return Invalid(file.path(), ": has no tensor ", tensor, ", which ", kIndexFile, " lists");
        }
        ATTNBIAS_RETURN_IF_ERROR(AddIfWanted(file, *entry));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<SafetensorsFile> OpenFile(const std::string& name) const {
    return SafetensorsFile::Open(folder_ / name, folder_);
  }

  absl::Status AddIfWanted(SafetensorsFile& file, const SafetensorsEntry& entry) {
    for (const Rule& rule : rules_) {
      const std::optional<Match> match = MatchTensor(rule, entry.name);
      if (!match.has_value()) continue;
      ATTNBIAS_RETURN_IF_ERROR(
          Located(absl::StrCat(file.path(), ":", entry.name), CheckShape(rule, *match, entry)));
      SafetensorsEntry table = entry;
      // A [1, rows, columns] parameter has a batch axis.
      if (table.shape.size() == 3 && table.shape.front() == 1) {
        table.shape.erase(table.shape.begin());
      }
      const std::string name =
          absl::StrCat(name_, "/", match->site, rule.part.empty() ? "" : ".", rule.part);
      ATTNBIAS_ASSIGN_OR_RETURN(MountedTable* const mounted, builder_.Add(name, file, table));
      User& user = users_[match->site];
      user.use = rule.use;
      user.site.numbers = match->numbers;
      user.site.tables.emplace(rule.part, mounted->table);
      user.tables.push_back(mounted);
    }
    return absl::OkStatus();
  }

  // Compares the tensor's shape with the one that transformers derives from config.json.
  absl::Status CheckShape(const Rule& rule, const Match& match, const SafetensorsEntry& entry) {
    config_.TakeReads();
    const std::vector<int64_t> want = ShapeOf(rule, config_, match.numbers);
    const std::string reads = config_.TakeReads();
    if (!config_.status().ok() || entry.shape == want) return config_.status();
    return Invalid("got shape [", absl::StrJoin(entry.shape, ", "), "], want [",
                   absl::StrJoin(want, ", "), "]; ", ModelConfig::kFile, ": ",
                   reads.empty() ? "does not state it" : reads);
  }

  // Sets the spec for a site's tables, after checking and completing it.
  absl::Status AddSpec(const User& user) {
    if (user.use == nullptr) return absl::OkStatus();
    std::optional<v1::TensorSpec> spec = user.use(user.site, config_);
    absl::Status status = config_.status();
    if (status.ok() && spec.has_value()) {
      Tables tables;
      for (const auto& [part, table] : user.site.tables) tables.Add(table);
      status = MakeEncoding(tables, *spec).status();
      spec->clear_output();
    }
    ATTNBIAS_RETURN_IF_ERROR(
        Located(absl::StrCat(folder_.string(), ": ", user.tables.front()->source), status));
    for (MountedTable* table : user.tables) table->spec = spec;
    return absl::OkStatus();
  }

  const std::string name_;
  const std::filesystem::path folder_;
  ModelConfig config_;
  TableSetBuilder& builder_;
  std::vector<Rule> rules_;
  std::map<std::string, User> users_;  // by site
};

}  // namespace

absl::Status AddCheckpoint(const std::string& name, const std::string& folder,
                           TableSetBuilder& builder) {
  ATTNBIAS_ASSIGN_OR_RETURN(json config, ReadJson(folder, ModelConfig::kFile));
  return Reader(name, folder, std::move(config), &builder).Read();
}

}  // namespace attnbias
