// SPDX-License-Identifier: Apache-2.0
// Tables that a request under test may name.
#pragma once

#include "core/mount/registry.h"

namespace attnbias {

// "bias" [32, 2] and "vectors" [9, 8], of F32. Created on first use.
const TableSet& MountedTables();

}  // namespace attnbias
