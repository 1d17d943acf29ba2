// SPDX-License-Identifier: Apache-2.0
// Products with vectors that a device keeps.
#include <utility>

#include "core/base/errors.h"
#include "core/kernel/cuda/accelerator.h"
#include "core/kernel/cuda/device.h"

namespace attnbias {

absl::Status DeviceVectors::Start(const std::byte* numbers, int64_t bytes) {
  ATTNBIAS_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream,
                            device_->NewStream());
  ATTNBIAS_ASSIGN_OR_RETURN(numbers_, device_->Allocate(bytes));
  ATTNBIAS_RETURN_IF_ERROR(stream->CopyIn(numbers_.get(), numbers, bytes));
  return stream->Wait();
}

template <typename T>
bool DeviceVectors::Multiply(const VectorProduct& product, const T* input,
                             T* out) {
  return device_.Check(TryMultiply(product, input, out));
}

template <typename T>
absl::Status DeviceVectors::TryMultiply(const VectorProduct& product,
                                        const T* input, T* out) {
  constexpr int64_t kAlignment = 256;
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  const int64_t in_bytes = product.rows * product.input_columns() * kSize;
  const int64_t out_bytes = product.rows * product.output_columns() * kSize;
  const int64_t out_begin = RoundUp(in_bytes, kAlignment);
  ATTNBIAS_ASSIGN_OR_RETURN(std::unique_ptr<Workspace> work,
                            Take(out_begin + out_bytes));
  std::byte* const memory = work->device.get();
  ATTNBIAS_RETURN_IF_ERROR(work->stream->CopyIn(
      memory, reinterpret_cast<const std::byte*>(input), in_bytes));
  ATTNBIAS_RETURN_IF_ERROR(work->stream->Launch(ProductLaunch<T>{
      .product = product,
      .vectors = reinterpret_cast<const T*>(numbers_.get()) + product.first,
      .input = reinterpret_cast<const T*>(memory),
      .out = reinterpret_cast<T*>(memory + out_begin)}));
  ATTNBIAS_RETURN_IF_ERROR(work->stream->CopyOut(
      reinterpret_cast<std::byte*>(out), memory + out_begin, out_bytes));
  ATTNBIAS_RETURN_IF_ERROR(work->stream->Wait());
  device_.Made(out_bytes);
  const MutexLock lock(mutex_);
  free_.push_back(std::move(work));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DeviceVectors::Workspace>> DeviceVectors::Take(
    int64_t bytes) {
  std::unique_ptr<Workspace> work;
  {
    const MutexLock lock(mutex_);
    if (!free_.empty()) {
      work = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (work == nullptr) {
    work = std::make_unique<Workspace>();
    ATTNBIAS_ASSIGN_OR_RETURN(work->stream, device_->NewStream());
  }
  if (work->bytes < bytes) {
    ATTNBIAS_ASSIGN_OR_RETURN(work->device, device_->Allocate(bytes));
    work->bytes = bytes;
  }
  return work;
}

template bool DeviceVectors::Multiply(const VectorProduct& product,
                                      const float* input, float* out);
template bool DeviceVectors::Multiply(const VectorProduct& product,
                                      const double* input, double* out);

}  // namespace attnbias
