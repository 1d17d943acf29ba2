// SPDX-License-Identifier: Apache-2.0
// Which tensors of which models hold positions, under the names that
// transformers 5.23 and earlier save them by.
#ifndef ATTNBIAS_CORE_MOUNT_CHECKPOINT_RULES_H_
#define ATTNBIAS_CORE_MOUNT_CHECKPOINT_RULES_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/mount/table_use.h"

namespace attnbias {

// A tensor of a model type. "*" stands for the number of a layer, in the
// tensor's name and in the place's; a tensor may have further segments in
// front.
struct Rule {
  std::string_view model_type;
  std::string_view tensor;
  std::string_view place;
  // Null where transformers itself cannot use the table.
  Use use;
  // Of the table among those of its place, if there are several.
  std::string_view part = {};
};

// What a rule makes of a tensor's name.
struct Match {
  std::string place;
  std::vector<int64_t> numbers;
};

// The rules of the configuration's model type. INVALID_ARGUMENT for one that is
// not known, the message listing those that are.
absl::StatusOr<std::vector<Rule>> RulesFor(ModelConfig& config);

// Nothing for a tensor that `rule` is not for.
std::optional<Match> MatchTensor(const Rule& rule, std::string_view tensor);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_MOUNT_CHECKPOINT_RULES_H_
