// SPDX-License-Identifier: Apache-2.0
#include "core/kernel/cuda/device_vectors.h"

#include <mutex>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/kernel/cuda/device_memory.h"

namespace attnbias {
namespace {

class KeptVectors final : public DeviceVectors {
 public:
  KeptVectors(GuardedDevice* device, SharedMemory numbers)
      : device_(*device), numbers_(std::move(numbers)) {}

  bool Multiply(const VectorProduct& product, const float* input,
                float* out) override {
    return device_.Check(TryMultiply(product, input, out));
  }
  bool Multiply(const VectorProduct& product, const double* input,
                double* out) override {
    return device_.Check(TryMultiply(product, input, out));
  }

 private:
  // What one product needs; kept for the next.
  struct Workspace {
    SharedMemory device;
    int64_t bytes = 0;
    std::unique_ptr<Stream> stream;  // goes first, and waits
  };

  template <typename T>
  absl::Status TryMultiply(const VectorProduct& product, const T* input,
                           T* out) {
    constexpr int64_t kAlignment = 256;
    constexpr auto kSize = static_cast<int64_t>(sizeof(T));
    const int64_t in_bytes = product.rows * product.input_columns() * kSize;
    const int64_t out_bytes = product.rows * product.output_columns() * kSize;
    const int64_t out_begin = RoundUp(in_bytes, kAlignment);
    absl::StatusOr<std::unique_ptr<Workspace>> taken =
        Take(out_begin + out_bytes);
    ATTNBIAS_RETURN_IF_ERROR(taken.status());
    Workspace& work = **taken;
    std::byte* const memory = work.device.get();
    ATTNBIAS_RETURN_IF_ERROR(work.stream->CopyIn(
        memory, reinterpret_cast<const std::byte*>(input), in_bytes));
    ATTNBIAS_RETURN_IF_ERROR(work.stream->Launch(ProductLaunch<T>{
        .product = product,
        .vectors = reinterpret_cast<const T*>(numbers_.get()) + product.first,
        .input = reinterpret_cast<const T*>(memory),
        .out = reinterpret_cast<T*>(memory + out_begin)}));
    ATTNBIAS_RETURN_IF_ERROR(work.stream->CopyOut(
        reinterpret_cast<std::byte*>(out), memory + out_begin, out_bytes));
    ATTNBIAS_RETURN_IF_ERROR(work.stream->Wait());
    device_.Made(out_bytes);
    std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(*std::move(taken));
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Workspace>> Take(int64_t bytes) {
    std::unique_ptr<Workspace> work;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!free_.empty()) {
        work = std::move(free_.back());
        free_.pop_back();
      }
    }
    if (work == nullptr) {
      work = std::make_unique<Workspace>();
      absl::StatusOr<std::unique_ptr<Stream>> stream = device_->NewStream();
      ATTNBIAS_RETURN_IF_ERROR(stream.status());
      work->stream = *std::move(stream);
    }
    if (work->bytes < bytes) {
      absl::StatusOr<SharedMemory> memory = device_->Allocate(bytes);
      ATTNBIAS_RETURN_IF_ERROR(memory.status());
      work->device = *std::move(memory);
      work->bytes = bytes;
    }
    return work;
  }

  GuardedDevice& device_;
  const SharedMemory numbers_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceVectors>> KeepVectorsOnDevice(
    const std::byte* numbers, int64_t bytes, GuardedDevice* device) {
  absl::StatusOr<std::unique_ptr<Stream>> stream = (*device)->NewStream();
  ATTNBIAS_RETURN_IF_ERROR(stream.status());
  absl::StatusOr<SharedMemory> memory = (*device)->Allocate(bytes);
  ATTNBIAS_RETURN_IF_ERROR(memory.status());
  ATTNBIAS_RETURN_IF_ERROR((*stream)->CopyIn(memory->get(), numbers, bytes));
  ATTNBIAS_RETURN_IF_ERROR((*stream)->Wait());
  return std::make_unique<KeptVectors>(device, *std::move(memory));
}

}  // namespace attnbias
