// SPDX-License-Identifier: Apache-2.0
// A checkpoint's files: config.json, and the model or an index with one shard. They are
// concatenated with zero bytes in between:
//
//   config.json 0 index 0 header of the model 0 data of the model
//
// A nonempty index replaces the model as the first file read.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>

#include "core/mount/registry.h"
#include "tests/fuzz/scratch_folder.h"
#include "tests/unit/support/safetensors_writer.h"

namespace attnbias {
namespace {

constexpr int64_t kMaxTableBytes = 1 << 20;

std::string_view TakePiece(std::string_view* rest) {
  const size_t end = std::min(rest->find('\0'), rest->size());
  const std::string_view piece = rest->substr(0, end);
  rest->remove_prefix(std::min(end + 1, rest->size()));
  return piece;
}

void Mount(const ScratchFolder& folder, std::string_view bytes) {
  const std::filesystem::path path = folder.path();
  folder.Write("config.json", TakePiece(&bytes));
  const std::string_view index = TakePiece(&bytes);
  std::string_view header = TakePiece(&bytes);
  const std::string model = SafetensorsBytes(std::string(header), bytes);
  std::filesystem::remove(path / "model.safetensors");
  if (index.empty()) {
    folder.Write("model.safetensors", model);
  } else {
    folder.Write("model.safetensors.index.json", index);
    folder.Write("shard", model);
  }
  TableSetBuilder builder(kMaxTableBytes);
  if (!AddCheckpoint("m", folder.path(), builder).ok()) return;
  (void)std::move(builder).Build();
}

}  // namespace
}  // namespace attnbias

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const attnbias::ScratchFolder folder;
  attnbias::Mount(folder, {reinterpret_cast<const char*>(data), size});
  return 0;
}
