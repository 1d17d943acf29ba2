// SPDX-License-Identifier: Apache-2.0
// Which tensors of which models hold positions, under the names that
// transformers 5.23 and earlier save them by, and how the models use them: what
// of an encoding's spec stands in config.json, and what is fixed in the model's
// code. The register of model types lists the tensors and names the functions
// that are here.
//
// Facts are those of transformers 5.23, or of the last version that had them;
// its own computation is what a spec's answer equals.
#ifndef ATTNBIAS_CORE_MOUNT_CHECKPOINT_RULES_H_
#define ATTNBIAS_CORE_MOUNT_CHECKPOINT_RULES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "attnbias/v1/encodings.pb.h"
#include "core/mount/model_config.h"
#include "core/table/table.h"

namespace attnbias {

// Where a model uses a table, or several together.
struct Site {
  // Of the layer, or of stage and block, where the model has a table for each.
  std::vector<int64_t> numbers;
  // By what they are called beside one another; one alone has no name.
  std::map<std::string, Table, std::less<>> tables;

  const Table& table() const { return tables.find("")->second; }
};

// What transformers gives a tensor, whose name has these numbers.
using Shape = std::vector<int64_t> (*)(ModelConfig& config,
                                       const std::vector<int64_t>& numbers);

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
  Shape shape;
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

// Nothing for a tensor that `rule` is not for.
std::optional<Match> MatchTensor(const Rule& rule, std::string_view tensor);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_MOUNT_CHECKPOINT_RULES_H_
