// SPDX-License-Identifier: Apache-2.0
// A device that computes large pieces of work, with results bit-identical to the CPU's.
//
// Every function may decline, because the device is missing, broken or full, or because the work is
// too small. The caller then uses the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/mutex.h"
#include "core/kernel/cuda/device.h"
#include "core/tensor/data_type.h"
#include "core/tensor/positions.h"

namespace attnbias {

// Keeps pinned host memory, by size, for the next piece of work. Pinning takes longer than
// computing a piece.
struct PinnedPool {
  Mutex mutex;
  std::multimap<int64_t, SharedMemory> free ABSL_GUARDED_BY(mutex);
  int64_t free_bytes ABSL_GUARDED_BY(mutex) = 0;
};

// A row-major tensor [lanes, queries, keys] whose elements repeat: the element for query q and key
// k is element key_coordinates[k] - query_coordinates[q] of its lane in `numbers`.
struct DenseExpansion {
  // Lane n begins at numbers + n * lane_stride_bytes.
  const std::byte* numbers = nullptr;
  int64_t lanes = 0;
  int64_t lane_numbers = 0;
  int64_t lane_stride_bytes = 0;
  int64_t element_bytes = 0;
  IndexMap query_coordinates;
  IndexMap key_coordinates;

  // Positions for the mask and the border. Pairs whose key - query is not in `visible` hold
  // `fill_bits`.
  IndexMap queries;
  IndexMap keys;
  Range visible;
  uint64_t fill_bits = 0;
  // Null, or [lanes, 3]: the elements from the class token, at position 0, to every key, from every
  // other query to the class token, and from the class token to itself.
  const std::byte* border = nullptr;
};

// Computes pieces of one expansion. Not thread-safe.
class DenseExpander {
 public:
  // `device` must outlive this object.
  explicit DenseExpander(GuardedDevice* device) : device_(*device) {}

  // Uploads the inputs for all pieces. Must be called first, and only once.
  absl::Status Start(const DenseExpansion& expansion);

  // Writes `elements` of the flat tensor to `out`. Returns false on failure.
  bool Make(Range elements, std::byte* out) { return device_.Check(TryMake(elements, out)); }

 private:
  absl::Status TryMake(Range elements, std::byte* out);

  GuardedDevice& device_;
  ExpansionLaunch launch_;
  // Copied to the device by Start.
  std::deque<std::vector<int64_t>> lists_;
  std::vector<SharedMemory> memory_;
  SharedMemory out_;
  std::unique_ptr<Stream> stream_;  // destroyed first; waits for its work
};

// Computes products with vectors stored on a device. Thread-safe.
class DeviceVectors {
 public:
  // `device` must outlive this object.
  explicit DeviceVectors(GuardedDevice* device) : device_(*device) {}

  // Copies `numbers`. Must be called first, and only once.
  absl::Status Start(const std::byte* numbers, int64_t bytes);

  // Writes [rows, output_columns] to `out`; all matrices are row-major and contiguous, with
  // elements of `type`: F32 or F64. Returns false on failure.
  bool Multiply(const VectorProduct& product, DataType type, const std::byte* input,
                std::byte* out) {
    return device_.Check(TryMultiply(product, type, input, out));
  }

 private:
  // Memory and stream for one product, reused for the next.
  struct Workspace {
    SharedMemory device;
    int64_t bytes = 0;
    std::unique_ptr<Stream> stream;  // destroyed first; waits for its work
  };

  absl::Status TryMultiply(const VectorProduct& product, DataType type, const std::byte* input,
                           std::byte* out);
  absl::StatusOr<std::unique_ptr<Workspace>> Take(int64_t bytes);

  GuardedDevice& device_;
  SharedMemory numbers_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_ ABSL_GUARDED_BY(mutex_);
};

struct AcceleratorOptions {
  // Minimum size of a result in bytes; the CPU computes smaller ones.
  int64_t min_bytes = 0;
  // True if the device also produces results that the CPU would send as slices without writing
  // them.
  bool replace_slices = false;
};

// Thread-safe.
class Accelerator {
 public:
  // `observer` must outlive this object.
  Accelerator(std::unique_ptr<Device> device, const AcceleratorOptions& options,
              AcceleratorObserver* observer);

  // Returns true if the device should compute a result of `bytes`. `cpu_writes_nothing` is true for
  // results that the CPU would send as slices.
  bool Wants(int64_t bytes, bool cpu_writes_nothing) const;

  // Returns the size of the memory that AllocateHost returns for `bytes`.
  static int64_t HostBytes(int64_t bytes);
  // Returns pinned memory, or null if there is none.
  SharedMemory AllocateHost(int64_t bytes);
  // Returns null on failure. Copies the expansion's arrays.
  std::unique_ptr<DenseExpander> MakeExpander(const DenseExpansion& expansion);
  // Returns null on failure. Copies `numbers`.
  std::unique_ptr<DeviceVectors> KeepVectors(const std::byte* numbers, int64_t bytes);

 private:
  GuardedDevice device_;
  const AcceleratorOptions options_;
  // Lives until all memory taken from it has been freed.
  const std::shared_ptr<PinnedPool> pool_ = std::make_shared<PinnedPool>();
};

}  // namespace attnbias
