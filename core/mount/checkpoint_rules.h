// SPDX-License-Identifier: Apache-2.0
// Which tensors of which models hold positions, under the names that
// transformers 5.23 and earlier save them by, and how the models use them: what
// of an encoding's spec stands in config.json, and what is fixed in the model's
// code. The register of model types lists the tensors and names the functions
// that are here.
//
// Facts are those of transformers 5.23, or of the last version that had them;
// its own computation is what a spec's answer equals.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnbias/v1/encodings.pb.h"
#include "core/table/table.h"

namespace attnbias {

// A checkpoint's config.json, as transformers understands it. A field that is
// absent is what transformers takes without it: its default, or what another
// field says. status() names the first that was not of its kind.
class ModelConfig {
 public:
  static constexpr char kFile[] = "config.json";

  explicit ModelConfig(nlohmann::json content) : content_(std::move(content)) {}

  // By field; "=NAME" is the value of another field.
  void SetDefaults(nlohmann::json defaults) { defaults_ = std::move(defaults); }

  std::string String(const char* field, std::string_view otherwise);
  int64_t Integer(const char* field);
  // A positive integer.
  int64_t Size(const char* field);
  // The integer at `index` of a list.
  int64_t Element(const char* field, size_t index);
  // Height and width, positive: a list of the two, or one integer for both.
  std::array<int64_t, 2> Sides(const char* field);

  // What was read since the last call, for a message: "FIELD = VALUE, ...".
  std::string TakeReads();

  // Makes status() say of `field` what it is and should be, if it is the first.
  void Refuse(std::string_view field, std::string_view got,
              std::string_view want);

  const absl::Status& status() const { return status_; }

 private:
  struct Found {
    std::string name;             // of the field that says it
    const nlohmann::json& value;  // null where none does
  };

  Found Find(const char* field);

  const nlohmann::json content_;
  nlohmann::json defaults_;
  std::vector<std::string> reads_;
  absl::Status status_;
};

// Where a model uses a table, or several together.
struct Site {
  // Of the layer, or of stage and block, where the model has a table for each.
  std::vector<int64_t> numbers;
  // By what they are called beside one another; one alone has no name.
  std::map<std::string, Table, std::less<>> tables;

  const Table& table() const { return tables.find("")->second; }
};

// Returns a spec with an encoding that names the site's tables by digest, and
// nothing where no encoding's fields can say what the model does.
using Use = std::optional<v1::TensorSpec> (*)(const Site& site,
                                              ModelConfig& config);

// A tensor of a model type. "*" stands for the number of a layer, in the
// tensor's name and in the site's; a tensor may have further segments in front.
struct Rule {
  std::string model_type;
  std::string tensor;
  std::string site;
  // The lengths of the tensor's axes. Each is a chain of terms, computed from
  // left to right, such as "2 * max_position_embeddings - 1".
  std::vector<std::string> shape;
  // Null where transformers itself cannot use the table.
  Use use;
  // Of the table among those of its site, if there are several.
  std::string part;
};

// What a rule makes of a tensor's name.
struct Match {
  std::string site;
  std::vector<int64_t> numbers;
};

// In the order of the alphabet.
std::vector<std::string> MountedModelTypes();

// The rules of the configuration's model type, whose defaults the configuration
// then has. INVALID_ARGUMENT for one that is
// not known, the message listing those that are.
absl::StatusOr<std::vector<Rule>> RulesFor(ModelConfig& config);

// Returns the shape that transformers gives the tensor of `rule` whose name has
// these numbers.
std::vector<int64_t> ShapeOf(const Rule& rule, ModelConfig& config,
                             const std::vector<int64_t>& numbers);

// Nothing for a tensor that `rule` is not for.
std::optional<Match> MatchTensor(const Rule& rule, std::string_view tensor);

}  // namespace attnbias
