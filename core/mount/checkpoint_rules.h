// SPDX-License-Identifier: Apache-2.0
// Describes which tensors of which models hold positions, and how the models use them: which spec
// fields come from config.json, and which are fixed in the models' code. Tensor names are those in
// checkpoints from transformers 5.23 and earlier. The registry of model types lists the tensors and
// names the functions defined here.
//
// Facts are taken from the code of transformers 5.23, or of the last version that had the model.
// The tensor that a spec describes equals the result of that code.
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

// A checkpoint's config.json, as transformers interprets it. An absent field has its default or the
// value of another field. status() names the first field with the wrong type.
class ModelConfig {
 public:
  static constexpr char kFile[] = "config.json";
  // Larger than any integer in a model's configuration. Products of two such integers do not
  // overflow.
  static constexpr int64_t kMaxInteger = int64_t{1} << 30;

  explicit ModelConfig(nlohmann::json content) : content_(std::move(content)) {}

  // Sets the defaults by field; "=NAME" means the value of the field NAME.
  void SetDefaults(nlohmann::json defaults) { defaults_ = std::move(defaults); }

  std::string String(const char* field, std::string_view otherwise);
  int64_t Integer(const char* field, int64_t least = -kMaxInteger);
  int64_t Size(const char* field) { return Integer(field, 1); }
  // Returns the integer at `index` in a list.
  int64_t Element(const char* field, size_t index);
  // Returns the height and width, both positive, given as a list or as a single integer for both.
  std::array<int64_t, 2> Sides(const char* field);

  // Returns the fields read since the last call, for a message: "FIELD = VALUE, ...".
  std::string TakeReads();

  // Sets status() to "FIELD: got X, want Y" unless it is an error already.
  void Refuse(std::string_view field, std::string_view got, std::string_view want);

  const absl::Status& status() const { return status_; }

 private:
  struct Found {
    std::string name;             // name of the field with the value
    const nlohmann::json& value;  // null if no field has it
  };

  Found Find(const char* field);

  const nlohmann::json content_;
  nlohmann::json defaults_;
  std::vector<std::string> reads_;
  absl::Status status_;
};

// A place in a model that uses one table, or several together.
struct Site {
  // The layer number, or the stage and block numbers, if each has its own table.
  std::vector<int64_t> numbers;
  // Tables by name within the site; a single table has no name.
  std::map<std::string, Table, std::less<>> tables;

  const Table& table() const { return tables.find("")->second; }
};

// Returns a spec with an encoding that names the site's tables by digest, or nothing if no encoding
// matches the model.
using Use = std::optional<v1::TensorSpec> (*)(const Site& site, ModelConfig& config);

// A tensor in models of one type. "*" stands for the layer number in the tensor and site names; a
// tensor's name may have additional leading segments.
struct Rule {
  std::string model_type;
  std::string tensor;
  std::string site;
  // Lengths of the tensor's axes. Each is a chain of terms, computed from left to right, such as
  // "2 * max_position_embeddings - 1".
  std::vector<std::string> shape;
  // Null if transformers itself cannot use the table.
  Use use;
  // Name of the table within its site, if the site has several.
  std::string part;
};

// Result of matching a tensor's name against a rule.
struct Match {
  std::string site;
  std::vector<int64_t> numbers;
};

// Returns the known model types in alphabetical order.
std::vector<std::string> MountedModelTypes();

// Returns the rules for the configuration's model type, and sets the configuration's defaults to
// that type's. Returns INVALID_ARGUMENT for an unknown type; the message lists the known types.
absl::StatusOr<std::vector<Rule>> RulesFor(ModelConfig& config);

// Returns the shape that transformers gives the tensor named by `rule` with these numbers.
std::vector<int64_t> ShapeOf(const Rule& rule, ModelConfig& config,
                             const std::vector<int64_t>& numbers);

// Returns nothing if `rule` is not for the tensor.
std::optional<Match> MatchTensor(const Rule& rule, std::string_view tensor);

}  // namespace attnbias
