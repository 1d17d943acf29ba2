// SPDX-License-Identifier: Apache-2.0
// Dense expansion on a device: two pieces take turns, so that one is computed
// while the other is copied.
#ifndef ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_EXPANDER_H_
#define ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_EXPANDER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "core/kernel/accelerator.h"
#include "core/kernel/cuda/guarded_device.h"

namespace attnbias {

class DeviceExpander final : public DenseExpander {
 public:
  explicit DeviceExpander(GuardedDevice* device) : device_(*device) {}

  // Uploads what all pieces have in common. First, and once.
  absl::Status Start(const DenseExpansion& expansion);

  bool Begin(Range elements, std::byte* out) override {
    return device_.Check(TryBegin(elements, out));
  }
  bool Finish() override;

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

#endif  // ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_EXPANDER_H_
