// SPDX-License-Identifier: Apache-2.0
// Files that claim to be .safetensors: opened, and every tensor read.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/safetensors/safetensors.h"
#include "tests/fuzz/heap_growth.h"
#include "tests/fuzz/scratch_folder.h"

namespace attnbias {
namespace {

constexpr int64_t kFixedBytes = 64 << 10;
constexpr int64_t kBytesPerByte = 64;

void ReadAll(const std::string& path, int64_t size) {
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok()) return;
  int64_t bytes = 0;
  for (const SafetensorsEntry& entry : file->entries()) {
    const absl::StatusOr<std::string> data = file->Read(entry);
    if (!data.ok() || file->Find(entry.name) != &entry) std::abort();
    bytes += static_cast<int64_t>(data->size());
  }
  if (bytes > size) std::abort();
}

}  // namespace
}  // namespace attnbias

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const attnbias::ScratchFolder folder;
  const std::string path = folder.Write("a", {reinterpret_cast<const char*>(data), size});
  const attnbias::HeapGrowth growth;
  attnbias::ReadAll(path, static_cast<int64_t>(size));
  growth.ExpectAtMost(attnbias::kFixedBytes, attnbias::kBytesPerByte, static_cast<int64_t>(size));
  return 0;
}
