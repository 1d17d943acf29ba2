// SPDX-License-Identifier: Apache-2.0
// Typed pieces of a device's memory.
#ifndef ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_MEMORY_H_
#define ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_MEMORY_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/base/errors.h"
#include "core/kernel/cuda/device.h"

namespace attnbias {

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

template <typename T>
DeviceArray<T> ArrayOf(const SharedMemory& memory, int64_t count) {
  return {reinterpret_cast<T*>(memory.get()), count};
}

// Has the stream copy `data`, which it reads until it has been waited for.
template <typename T>
absl::Status Upload(Device& device, Stream& stream, absl::Span<const T> data,
                    SharedMemory* memory, DeviceArray<const T>* array) {
  const auto count = static_cast<int64_t>(data.size());
  const auto bytes = count * static_cast<int64_t>(sizeof(T));
  ATTNBIAS_ASSIGN_OR_RETURN(*memory,
                            device.Allocate(std::max<int64_t>(bytes, 1)));
  *array = ArrayOf<const T>(*memory, count);
  return stream.CopyIn(memory->get(),
                       reinterpret_cast<const std::byte*>(data.data()), bytes);
}

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_MEMORY_H_
