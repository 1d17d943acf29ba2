// SPDX-License-Identifier: Apache-2.0
// Dense expansion on a device: two pieces take turns, so that one is computed
// while the other is copied.
#ifndef ATTNBIAS_CORE_KERNEL_CUDA_DENSE_EXPANDER_H_
#define ATTNBIAS_CORE_KERNEL_CUDA_DENSE_EXPANDER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "core/kernel/cuda/guarded_device.h"
#include "core/tensor/line.h"

namespace attnbias {

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

// Makes pieces of one expansion. Not safe for concurrent use.
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
  // `list` is read until the stream has been waited for.
  absl::Status UploadLine(const Line& line, Stream& stream,
                          std::vector<int64_t>* list, DeviceLine* device_line);

  GuardedDevice& device_;
  // What all launches have in common.
  ExpansionLaunch launch_;
  std::vector<SharedMemory> memory_;
  std::array<Slot, 2> slots_;
  size_t next_ = 0;
  std::deque<Slot*> under_way_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_KERNEL_CUDA_DENSE_EXPANDER_H_
