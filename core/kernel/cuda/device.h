// SPDX-License-Identifier: Apache-2.0
// What is asked of a CUDA device, and no more. Tests put a CPU in its place.
//
// Errors are RESOURCE_EXHAUSTED where memory is short, UNAVAILABLE where there
// is no device, INTERNAL where it is broken.
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
#include "core/kernel/cuda/launches.h"

namespace attnbias {

// Freed when the last copy goes; device memory begins at a multiple of 256.
using SharedMemory = std::shared_ptr<std::byte>;

// A product with some of the vectors that a device keeps: `vectors` of them,
// each `width` numbers, `stride` numbers apart, from number `first` on.
struct VectorProduct {
  int64_t rows = 0;
  int64_t vectors = 0;
  int64_t width = 0;
  int64_t stride = 0;
  int64_t first = 0;
  // Whether [rows, width] numbers are multiplied with each vector, or the
  // vectors summed with the weights [rows, vectors].
  bool transposed = false;

  constexpr int64_t input_columns() const {
    return transposed ? width : vectors;
  }
  constexpr int64_t output_columns() const {
    return transposed ? vectors : width;
  }
};

// A product whose operands are all on the device; `vectors` points at number
// `first`.
template <typename T>
struct ProductLaunch {
  VectorProduct product;
  const T* vectors = nullptr;
  const T* input = nullptr;
  T* out = nullptr;
};

// Does work in the order in which it is given, and has done it when Wait
// returns. An error may come from earlier work. Not safe for concurrent use.
class Stream {
 public:
  virtual ~Stream() = default;  // waits
  virtual absl::Status CopyIn(std::byte* device, const std::byte* host,
                              int64_t bytes) = 0;
  virtual absl::Status CopyOut(std::byte* host, const std::byte* device,
                               int64_t bytes) = 0;
  virtual absl::Status SetZero(std::byte* device, int64_t bytes) = 0;
  virtual absl::Status Launch(const ExpansionLaunch& launch) = 0;
  virtual absl::Status Launch(const SinusoidLaunch& launch) = 0;
  virtual absl::Status Launch(const ProductLaunch<float>& launch) = 0;
  virtual absl::Status Launch(const ProductLaunch<double>& launch) = 0;
  virtual absl::Status Wait() = 0;
};

// Any number of threads may use it at once.
class Device {
 public:
  virtual ~Device() = default;
  // For people to read.
  virtual std::string description() const = 0;
  // Whether there is something to multiply matrices with.
  virtual bool has_products() const = 0;
  virtual absl::StatusOr<SharedMemory> Allocate(int64_t bytes) = 0;
  // Of the host, pinned.
  virtual absl::StatusOr<SharedMemory> AllocateHost(int64_t bytes) = 0;
  virtual absl::StatusOr<std::unique_ptr<Stream>> NewStream() = 0;
};

// Told what a device does. Called from any thread; must be quick.
class AcceleratorObserver {
 public:
  virtual ~AcceleratorObserver() = default;
  // Results that left the device.
  virtual void OnMade(int64_t bytes) = 0;
  // The CPU takes over: for all work when `for_good`, else for one piece that
  // there was no memory for. Called at most once for either.
  virtual void OnFallback(const absl::Status& why, bool for_good) = 0;
};

// A device, and whether it still works. Any number of threads may use it at
// once.
class GuardedDevice {
 public:
  // `observer` outlives this.
  GuardedDevice(std::unique_ptr<Device> device, AcceleratorObserver* observer)
      : device_(std::move(device)), observer_(*observer) {}

  Device& operator*() const { return *device_; }
  Device* operator->() const { return device_.get(); }

  // False once anything but memory has failed.
  bool works() const { return !broken_; }
  // Whether `status` is OK. If not, tells the observer, and gives the device up
  // unless it only lacked memory.
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

// The machine's first CUDA device. UNAVAILABLE, saying why, when there is none,
// its driver is too old, or the backend was not built.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice();

// How the backend, a library of its own, is entered.
inline constexpr char kOpenCudaDevice[] = "attnbias_open_cuda_device";
using OpenDeviceFunction = void(absl::StatusOr<std::unique_ptr<Device>>*);

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
