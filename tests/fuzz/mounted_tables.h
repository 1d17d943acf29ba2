// SPDX-License-Identifier: Apache-2.0
// The tables that a request under test may name.
#ifndef ATTNBIAS_TESTS_FUZZ_MOUNTED_TABLES_H_
#define ATTNBIAS_TESTS_FUZZ_MOUNTED_TABLES_H_

#include "core/mount/registry.h"

namespace attnbias {

// "bias" [32, 2] and "vectors" [9, 8], of F32. Made when first asked for.
const TableSet& MountedTables();

}  // namespace attnbias

#endif  // ATTNBIAS_TESTS_FUZZ_MOUNTED_TABLES_H_
