// SPDX-License-Identifier: Apache-2.0
// The interface of a CUDA device. Tests implement it on the CPU.
//
// Errors: RESOURCE_EXHAUSTED if memory runs out, UNAVAILABLE if there is no device, INTERNAL if the
// device is broken.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/base/errors.h"
#include "core/kernel/cuda/kernel_bodies.h"
#include "core/tensor/data_type.h"

namespace attnbias {

// Maximum size of the pinned memory kept for later use, and of the freed memory that the device's
// pool keeps.
inline constexpr int64_t kMaxPooledBytes = int64_t{64} << 20;

// Freed with its last copy; by then no stream may be using it. Device memory is aligned to 256
// bytes.
using SharedMemory = std::shared_ptr<std::byte>;

// A product with some of the vectors stored on a device: `vectors` vectors with `width` elements
// each, `stride` elements apart, starting at element `first`.
struct VectorProduct {
  int64_t rows = 0;
  int64_t vectors = 0;
  int64_t width = 0;
  int64_t stride = 0;
  int64_t first = 0;
  // If true, multiplies a [rows, width] matrix by each vector. If false, sums the vectors, weighted
  // by a [rows, vectors] matrix.
  bool transposed = false;

  constexpr int64_t input_columns() const { return transposed ? width : vectors; }
  constexpr int64_t output_columns() const { return transposed ? vectors : width; }
};

// A product whose operands are all on the device, with elements of `type`: F32 or F64. `vectors`
// points to element `first`.
struct ProductLaunch {
  VectorProduct product;
  DataType type = DataType::kF32;
  const std::byte* vectors = nullptr;
  const std::byte* input = nullptr;
  std::byte* out = nullptr;
};

// Executes work in order. Work is complete only once Wait has returned. An error may be caused by
// earlier work. Not thread-safe.
class Stream {
 public:
  virtual ~Stream() = default;  // waits for its work
  virtual absl::Status CopyIn(std::byte* device, const std::byte* host, int64_t bytes) = 0;
  virtual absl::Status CopyOut(std::byte* host, const std::byte* device, int64_t bytes) = 0;
  virtual absl::Status Launch(const ExpansionLaunch& launch) = 0;
  virtual absl::Status Launch(const ProductLaunch& launch) = 0;
  virtual absl::Status Wait() = 0;
};

// Thread-safe.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string description() const = 0;
  // Returns true if cuBLAS can multiply matrices.
  virtual bool has_products() const = 0;
  virtual absl::StatusOr<SharedMemory> Allocate(int64_t bytes) = 0;
  // Allocates pinned host memory.
  virtual absl::StatusOr<SharedMemory> AllocateHost(int64_t bytes) = 0;
  virtual absl::StatusOr<std::unique_ptr<Stream>> NewStream() = 0;
};

// Observes a device's work. Called from any thread; must be quick.
class AcceleratorObserver {
 public:
  virtual ~AcceleratorObserver() = default;
  // Reports results received by the host.
  virtual void OnMade(int64_t bytes) = 0;
  // Reports that the CPU takes over: all work if `for_good`; otherwise one piece, because the
  // device is out of memory. Called at most once for each value of `for_good`.
  virtual void OnFallback(const absl::Status& why, bool for_good) = 0;
};

// A device and its state. Thread-safe.
class GuardedDevice {
 public:
  // `observer` must outlive this object.
  GuardedDevice(std::unique_ptr<Device> device, AcceleratorObserver* observer)
      : device_(std::move(device)), observer_(*observer) {}

  Device& operator*() const { return *device_; }
  Device* operator->() const { return device_.get(); }

  // Returns false after any error except running out of memory.
  bool works() const { return !broken_; }
  // Returns true if `status` is OK. If not, notifies the observer, and stops using the device
  // unless it only ran out of memory.
  bool Check(const absl::Status& status) {
    if (status.ok()) return true;
    if (absl::IsResourceExhausted(status)) {
      if (!was_full_.exchange(true)) observer_.OnFallback(status, false);
    } else if (!broken_.exchange(true)) {
      observer_.OnFallback(status, true);
    }
    return false;
  }
  void Made(int64_t bytes) { observer_.OnMade(bytes); }

 private:
  const std::unique_ptr<Device> device_;
  AcceleratorObserver& observer_;
  std::atomic<bool> broken_{false};
  std::atomic<bool> was_full_{false};
};

// Opens the machine's first CUDA device. Returns UNAVAILABLE, with the reason, if there is none,
// its driver is too old, or the backend was not built.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice();

// Entry point of the backend, which is a separate library.
inline constexpr char kOpenCudaDevice[] = "attnbias_open_cuda_device";
using OpenDeviceFunction = void(absl::StatusOr<std::unique_ptr<Device>>*);

template <typename T>
DeviceArray<T> ArrayOf(const SharedMemory& memory, int64_t count) {
  return {reinterpret_cast<T*>(memory.get()), count};
}

// Copies `data` on the stream, which may read it until Wait returns.
template <typename T>
absl::Status Upload(Device& device, Stream& stream, absl::Span<const T> data, SharedMemory* memory,
                    DeviceArray<const T>* array) {
  const auto count = static_cast<int64_t>(data.size());
  const auto bytes = count * static_cast<int64_t>(sizeof(T));
  ATTNBIAS_ASSIGN_OR_RETURN(*memory, device.Allocate(std::max<int64_t>(bytes, 1)));
  *array = ArrayOf<const T>(*memory, count);
  return stream.CopyIn(memory->get(), reinterpret_cast<const std::byte*>(data.data()), bytes);
}

}  // namespace attnbias
