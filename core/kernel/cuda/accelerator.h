// SPDX-License-Identifier: Apache-2.0
// A device that makes large pieces of work: the same bits as the CPU, on
// memory of its own behind a bus.
//
// Everything here may be declined, and then the caller does it on the CPU: a
// device may be missing, broken or full, or the work may be too small for it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/mutex.h"
#include "core/kernel/cuda/device.h"
#include "core/kernel/kernel_set.h"
#include "core/tensor/data_type.h"
#include "core/tensor/line.h"

namespace attnbias {

// Keeps pinned memory of the host for the next piece of work: pinning costs
// more than a piece's computation.
//
// Any number of threads may use it at once. Lives as long as what it gave.
class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  // Until the last Allocate, `device` must be there.
  explicit PinnedPool(Device* device) : device_(*device) {}

  absl::StatusOr<SharedMemory> Allocate(int64_t bytes);

 private:
  Device& device_;
  Mutex mutex_;
  std::multimap<int64_t, SharedMemory> free_ ABSL_GUARDED_BY(mutex_);
  int64_t free_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A row-major tensor [lanes, queries, keys] of numbers that repeat: key k, seen
// from query q, has number key_coordinates[k] - query_coordinates[q] of its
// lane.
struct DenseExpansion {
  // Lane n begins at numbers + n * lane_stride_bytes.
  const std::byte* numbers = nullptr;
  int64_t lanes = 0;
  int64_t lane_numbers = 0;
  int64_t lane_stride_bytes = 0;
  int64_t element_bytes = 0;
  Line query_coordinates;
  Line key_coordinates;

  // Masks and the border go by these positions. Pairs whose key - query is not
  // in `visible` hold the fill's bits.
  Line queries;
  Line keys;
  Range visible;
  uint64_t fill_bits = 0;
  // Null, or [lanes, 3]: what the class token, at position 0, gives every key,
  // what every other query gives it, and what it gives itself.
  const std::byte* border = nullptr;
};

// Makes pieces of one expansion: two take turns, so that one is computed while
// the other is copied. Not safe for concurrent use.
class DenseExpander {
 public:
  // `device` outlives this.
  explicit DenseExpander(GuardedDevice* device) : device_(*device) {}

  // Uploads what all pieces have in common. First, and once.
  absl::Status Start(const DenseExpansion& expansion);

  // Starts to write elements `elements` of the flat tensor to `out`, memory of
  // Accelerator::AllocateHost. At most two pieces are under way. False when it
  // cannot be done.
  bool Begin(Range elements, std::byte* out) {
    return device_.Check(TryBegin(elements, out));
  }
  // Waits for the piece begun first; false when it has failed.
  bool Finish();

 private:
  // A piece under way.
  struct Slot {
    SharedMemory out;
    int64_t out_bytes = 0;
    int64_t made_bytes = 0;
    std::unique_ptr<Stream> stream;  // goes first, and waits
  };

  absl::Status TryBegin(Range elements, std::byte* out);

  GuardedDevice& device_;
  // What all launches have in common.
  ExpansionLaunch launch_;
  std::vector<SharedMemory> memory_;
  // They take turns.
  std::array<Slot, 2> slots_;
  size_t begun_ = 0;
  size_t finished_ = 0;
};

// Many blocks of FillSinusoid's, one after another, with the same rotations.
struct SinusoidBlocks {
  // Here anchor_sin, anchor_cos and sin_bound are [blocks, pairs], and `rows`
  // counts the rows of all blocks. All but the last have block_rows.
  SinusoidBlock block;
  int64_t block_rows = 0;
  // F32, F16 or BF16.
  DataType type = DataType::kF32;
};

// Products with vectors that a device keeps. Any number of threads may use it
// at once.
class DeviceVectors {
 public:
  // `device` outlives this.
  explicit DeviceVectors(GuardedDevice* device) : device_(*device) {}

  // Copies the numbers. First, and once.
  absl::Status Start(const std::byte* numbers, int64_t bytes);

  // Writes [rows, output_columns] to `out`; all matrices are row-major without
  // holes. False when it cannot be done. T is float or double.
  template <typename T>
  bool Multiply(const VectorProduct& product, const T* input, T* out);

 private:
  // What one product needs; kept for the next.
  struct Workspace {
    SharedMemory device;
    int64_t bytes = 0;
    std::unique_ptr<Stream> stream;  // goes first, and waits
  };

  template <typename T>
  absl::Status TryMultiply(const VectorProduct& product, const T* input,
                           T* out);
  absl::StatusOr<std::unique_ptr<Workspace>> Take(int64_t bytes);

  GuardedDevice& device_;
  SharedMemory numbers_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_ ABSL_GUARDED_BY(mutex_);
};

struct AcceleratorOptions {
  // Results smaller than this are left to the CPU.
  int64_t min_bytes = 0;
  // Whether the device also makes what the CPU would send without writing it.
  bool replace_slices = false;
};

// Any number of threads may use it at once.
class Accelerator {
 public:
  // `observer` outlives this.
  Accelerator(std::unique_ptr<Device> device, const AcceleratorOptions& options,
              AcceleratorObserver* observer);

  // Whether work that results in so many bytes is worth handing over. The CPU
  // writes nothing for what it sends as slices.
  bool Wants(int64_t bytes, bool cpu_writes_nothing) const;

  // Memory that the device writes to fast; null when there is none.
  std::shared_ptr<std::byte> AllocateHost(int64_t bytes);
  // Null when it cannot be done. Copies what the expansion points at.
  std::unique_ptr<DenseExpander> MakeExpander(const DenseExpansion& expansion);
  // Writes elements, and the indices of those whose rounding is undecided, as
  // FillSinusoid does, but overruns nothing. Columns that hold neither a sine
  // nor a cosine become 0. False when it cannot be done; it may have written
  // then.
  bool FillSinusoids(const SinusoidBlocks& blocks, std::byte* out,
                     std::vector<int64_t>* undecided);
  // Null when it cannot be done. Copies the numbers.
  std::unique_ptr<DeviceVectors> KeepVectors(const std::byte* numbers,
                                             int64_t bytes);

 private:
  GuardedDevice device_;
  const AcceleratorOptions options_;
  const std::shared_ptr<PinnedPool> pool_;
};

}  // namespace attnbias
