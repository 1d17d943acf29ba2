// SPDX-License-Identifier: Apache-2.0
// The file listing the specs that a server computes before it is ready.
#include <cstdint>

#include "server/service/precompute.h"
#include "tests/fuzz/mounted_tables.h"
#include "tests/fuzz/scratch_folder.h"
#include "tests/unit/support/counting_observer.h"
#include "tests/unit/support/threads.h"

namespace attnbias {
namespace {

// Returns an engine that plans without computing.
const Engine& Planner() {
  static auto* const threads = new Threads(0);
  static auto* const observer = new CountingObserver();
  static const auto* const engine =
      new Engine(EngineOptions(), *SupportedKernelSets().front(), threads, observer);
  return *engine;
}

}  // namespace
}  // namespace attnbias

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  attnbias::MountedTables();
  attnbias::Planner();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const attnbias::ScratchFolder folder;
  (void)attnbias::ReadPrecomputeFile(
      folder.Write("specs.json", {reinterpret_cast<const char*>(data), size}), attnbias::Planner(),
      attnbias::MountedTables());
  return 0;
}
