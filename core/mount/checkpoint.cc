// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/base/errors.h"
#include "core/encoding/make_encoding.h"
#include "core/mount/checkpoint_rules.h"
#include "core/mount/json_file.h"
#include "core/mount/registry.h"

namespace attnbias {
namespace {

using nlohmann::json;

constexpr char kModelFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
// Begins the name of the index of a variant.
constexpr char kIndexOfVariant[] = "model.safetensors.index.";
constexpr char kAdapterFile[] = "adapter_config.json";

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
    // A shard lies in the folder of its index.
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

// Returns the names of the files of `folder` that hold weights.
std::vector<std::string> WeightFiles(const std::filesystem::path& folder) {
  static constexpr std::string_view kEndings[] = {
      ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".index.json"};
  std::vector<std::string> files;
  std::error_code error;
  for (std::filesystem::directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error)) {
    const std::string name = file->path().filename();
    const auto ends = [&name](std::string_view ending) { return name.ends_with(ending); };
    if ((name.starts_with(kIndexOfVariant) && ends(".json")) ||
        std::ranges::any_of(kEndings, ends)) {
      files.push_back(name);
    }
  }
  std::ranges::sort(files);
  return files;
}

// Returns the name that transformers gives `name` without its variant, such as "fp16" in
// model.fp16.safetensors; empty if it has none.
std::string WithoutVariant(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '.');
  if (parts.size() == 3 && parts[0] == "model" && parts[2] == "safetensors") return kModelFile;
  const bool is_index =
      parts.size() == 5 && parts[4] == "json" && name.starts_with(kIndexOfVariant);
  return is_index ? kIndexFile : "";
}

// Quotes one word of a shell's command.
std::string ShellWord(const std::string& word) {
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

// Returns the end of a message: the command that makes a checkpoint of `files`.
std::string Conversion(const std::filesystem::path& folder, const std::vector<std::string>& files) {
  if (files.empty()) return "";
  for (const std::string& file : files) {
    const std::string name = WithoutVariant(file);
    if (name.empty()) continue;
    return absl::StrCat("; link one that lacks only the name: ln -s ", ShellWord(file), " ",
                        ShellWord(folder / name));
  }
  for (const std::string& file : files) {
    if (file != "pytorch_model.bin" && file != "pytorch_model.bin.index.json") continue;
    std::filesystem::path to = folder.lexically_normal();
    if (!to.has_filename()) to = to.parent_path();
    return absl::StrCat(
        "; convert it: python -c 'from sys import argv; from transformers import AutoModel; "
        "AutoModel.from_pretrained(argv[1]).save_pretrained(argv[2])' ",
        ShellWord(folder), " ", ShellWord(to.string() + "-safetensors"));
  }
  return "; use the checkpoint in the format that transformers saves";
}

absl::Status NoModelFile(const std::filesystem::path& folder) {
  constexpr size_t kMostNamed = 8;
  std::vector<std::string> files = WeightFiles(folder);
  const std::string conversion = Conversion(folder, files);
  if (const size_t count = files.size(); count > kMostNamed) {
    files.resize(kMostNamed);
    files.push_back(absl::StrCat("and ", count - kMostNamed, " more"));
  }
  for (std::string& file : files) file = absl::CEscape(file);
  return absl::NotFoundError(absl::StrCat(
      folder.string(), ": got ", files.empty() ? "no file of weights" : absl::StrJoin(files, ", "),
      ", want ", kModelFile, ", or ", kIndexFile, " with its shards", conversion));
}

class Reader {
 public:
  Reader(std::string name, std::filesystem::path folder, json config, TableSetBuilder* builder)
      : name_(std::move(name)),
        folder_(std::move(folder)),
        config_(std::move(config)),
        builder_(*builder) {}

  absl::Status Read() {
    absl::StatusOr<std::vector<Rule>> rules = RulesFor(config_);
    if (!rules.ok()) return Invalid(folder_.string(), ": ", rules.status().message());
    rules_ = *std::move(rules);
    if (Exists(folder_ / kModelFile)) {
      ATTNBIAS_RETURN_IF_ERROR(AddWholeModel());
    } else if (Exists(folder_ / kIndexFile)) {
      ATTNBIAS_RETURN_IF_ERROR(AddShards());
    } else {
      return NoModelFile(folder_);
    }
    if (users_.empty()) {
      return Invalid(folder_.string(), ": none of the tensors that a ", rules_.front().model_type,
                     " has: ", absl::StrJoin(rules_, ", ", [](std::string* out, const Rule& rule) {
                       out->append(rule.tensor);
                     }));
    }
    for (const auto& [site, user] : users_) {
      ATTNBIAS_RETURN_IF_ERROR(AddSpec(user));
    }
    return absl::OkStatus();
  }

 private:
  // The use of the tables of one site, all of which are known at the end.
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

  // Opens only the shards with a wanted tensor.
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
      if (absl::Status status = CheckShape(rule, *match, entry); !status.ok()) {
        return Located(absl::StrCat(file.path(), ":", entry.name), status);
      }
      SafetensorsEntry table = entry;
      // A parameter [1, rows, columns] has an axis of a batch.
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

  // Compares the tensor's shape with the one that transformers makes of config.json.
  absl::Status CheckShape(const Rule& rule, const Match& match, const SafetensorsEntry& entry) {
    config_.TakeReads();
    const std::vector<int64_t> want = ShapeOf(rule, config_, match.numbers);
    const std::string reads = config_.TakeReads();
    if (!config_.status().ok() || entry.shape == want) return config_.status();
    return Invalid("got shape [", absl::StrJoin(entry.shape, ", "), "], want [",
                   absl::StrJoin(want, ", "), "]; ", ModelConfig::kFile, ": ",
                   reads.empty() ? "does not state it" : reads);
  }

  // Sets the spec of a site's tables, checked and completed.
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
    if (!status.ok()) {
      return Invalid(folder_.string(), ": ", user.tables.front()->source, ": ", status.message());
    }
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
  const std::filesystem::path path = folder;
  if (!Exists(path / ModelConfig::kFile) && Exists(path / kAdapterFile)) {
    return absl::NotFoundError(absl::StrCat(
        folder, ": got ", kAdapterFile, " without ", ModelConfig::kFile,
        ", which is a PEFT adapter; want the folder of its base model, whose name is in ",
        kAdapterFile, ": base_model_name_or_path"));
  }
  ATTNBIAS_ASSIGN_OR_RETURN(json config, ReadJson(folder, ModelConfig::kFile));
  return Reader(name, folder, std::move(config), &builder).Read();
}

}  // namespace attnbias
