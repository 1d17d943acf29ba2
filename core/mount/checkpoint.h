// SPDX-License-Identifier: Apache-2.0
// Finds the position tables in a transformers checkpoint: which tensors of a
// model type they are, and what its configuration says of their use.
#ifndef ATTNBIAS_CORE_MOUNT_CHECKPOINT_H_
#define ATTNBIAS_CORE_MOUNT_CHECKPOINT_H_

#include <string>

#include "absl/status/status.h"
#include "core/mount/registry.h"

namespace attnbias {

// Adds the tables of the checkpoint in `folder`, which holds config.json and
// either model.safetensors or model.safetensors.index.json with its shards.
// Their names begin with "NAME/". INVALID_ARGUMENT for a model type that is not
// known (the message lists those that are) or has no table here, a
// configuration that its tensors contradict, a file that is damaged; NOT_FOUND
// for one that is missing, the message saying what there is instead and what
// converts it.
absl::Status AddCheckpoint(const std::string& name, const std::string& folder,
                           TableSetBuilder& builder);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_MOUNT_CHECKPOINT_H_
