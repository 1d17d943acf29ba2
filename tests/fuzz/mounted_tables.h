// SPDX-License-Identifier: Apache-2.0
// Tables that a request under test may name.
#pragma once

#include "core/mount/registry.h"

namespace attnbias {

// Returns the F32 tables "bias" [32, 2] and "vectors" [9, 8], which are created on first use.
const TableSet& MountedTables();

}  // namespace attnbias
