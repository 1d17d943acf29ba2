// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/heap_growth.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

// NOLINTBEGIN(bugprone-reserved-identifier): from <sanitizer/allocator_interface.h>, which is not
// installed for other steps.
extern "C" int __sanitizer_install_malloc_and_free_hooks(
    void (*on_malloc)(const volatile void* memory, size_t size),
    void (*on_free)(const volatile void* memory));
extern "C" size_t __sanitizer_get_allocated_size(const volatile void* memory);
// NOLINTEND(bugprone-reserved-identifier)

namespace attnbias {
namespace {

struct Count {
  bool runs = false;
  int64_t now = 0;
  int64_t most = 0;
};
thread_local Count count;

void OnMalloc(const volatile void* /*memory*/, size_t size) {
  if (!count.runs) return;
  count.now += static_cast<int64_t>(size);
  count.most = std::max(count.most, count.now);
}

void OnFree(const volatile void* memory) {
  if (!count.runs || memory == nullptr) return;
  count.now -= static_cast<int64_t>(__sanitizer_get_allocated_size(memory));
}

}  // namespace

HeapGrowth::HeapGrowth() {
  static const int installed = __sanitizer_install_malloc_and_free_hooks(&OnMalloc, &OnFree);
  if (installed == 0) std::abort();
  count = {.runs = true};
}

HeapGrowth::~HeapGrowth() { count.runs = false; }

void HeapGrowth::ExpectAtMost(int64_t fixed, int64_t per_byte, int64_t input_bytes) const {
  const int64_t most = count.most;
  if (most <= fixed + per_byte * input_bytes) return;
  count.runs = false;
  std::fprintf(stderr,
               "heap: %lld bytes at once for %lld bytes of input, want at most "
               "%lld and %lld for each\n",
               static_cast<long long>(most), static_cast<long long>(input_bytes),
               static_cast<long long>(fixed), static_cast<long long>(per_byte));
  std::abort();
}

}  // namespace attnbias
