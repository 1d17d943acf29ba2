// SPDX-License-Identifier: Apache-2.0
// Files that claim to be .npy, from which the command line reads tables.
#include <cstdint>
#include <cstdlib>

#include "attnbias/tensor.h"
#include "client/cli/table_file.h"
#include "tests/fuzz/scratch_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const attnbias::ScratchFolder folder;
  const auto table =
      attnbias::ReadTableFile(folder.Write("a.npy", {reinterpret_cast<const char*>(data), size}));
  if (!table.ok()) return 0;
  auto wanted = static_cast<size_t>(attnbias::ElementSize(table->data_type()));
  for (const int64_t length : table->shape()) wanted *= length;
  if (table->data().size() != wanted || wanted > size) std::abort();
  return 0;
}
