// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/mounted_tables.h"

#include <utility>
#include <vector>

#include "tests/fuzz/scratch_folder.h"
#include "tests/unit/support/safetensors_writer.h"

namespace attnbias {
namespace {

TableSetPtr Mount() {
  const ScratchFolder folder;
  const std::string path = folder.Write(
      "tables.safetensors", SafetensorsBytes({{"bias", {32, 2}, std::vector<float>(64, 0.5F)},
                                              {"vectors", {9, 8}, std::vector<float>(72, 2)}}));
  SafetensorsFile file = *SafetensorsFile::Open(path);
  TableSetBuilder builder(1 << 20);
  for (const SafetensorsEntry& entry : file.entries()) {
    if (!builder.Add(entry.name, file, entry).ok()) std::abort();
  }
  return *std::move(builder).Build();
}

}  // namespace

const TableSet& MountedTables() {
  static const TableSetPtr tables = Mount();
  return *tables;
}

}  // namespace attnbias
