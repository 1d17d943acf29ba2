// SPDX-License-Identifier: Apache-2.0
// Reads the presets of proto/presets, which are built into the program.
#ifndef ATTNBIAS_CLIENT_CLI_PRESETS_H_
#define ATTNBIAS_CLIENT_CLI_PRESETS_H_

#include "presets/presets.pb.h"

namespace attnbias {

// Returns all presets, in the order of their file.
const presets::Presets& Presets();

}  // namespace attnbias

#endif  // ATTNBIAS_CLIENT_CLI_PRESETS_H_
