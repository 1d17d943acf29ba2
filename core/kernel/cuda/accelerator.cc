// SPDX-License-Identifier: Apache-2.0
#include "core/kernel/cuda/accelerator.h"

#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"

namespace attnbias {
namespace {

constexpr int64_t kMinBytes = int64_t{64} << 10;

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

absl::Status DenseExpander::Start(const DenseExpansion& expansion) {
  Device& device = *device_;
  ATTNBIAS_ASSIGN_OR_RETURN(stream_, device.NewStream());
  Stream& stream = *stream_;
  const int64_t size = expansion.element_bytes;
  const int64_t bytes = expansion.lanes * expansion.lane_numbers * size;
  ATTNBIAS_ASSIGN_OR_RETURN(const SharedMemory numbers, device.Allocate(bytes));
  memory_.push_back(numbers);
  for (int64_t lane = 0; lane < expansion.lanes; ++lane) {
    ATTNBIAS_RETURN_IF_ERROR(stream.CopyIn(numbers.get() + lane * expansion.lane_numbers * size,
                                           expansion.numbers + lane * expansion.lane_stride_bytes,
                                           expansion.lane_numbers * size));
  }
  launch_.numbers = ArrayOf<const std::byte>(numbers, bytes);
  launch_.lane_numbers = expansion.lane_numbers;
  launch_.element_bytes = size;
  launch_.num_queries = expansion.queries.size();
  launch_.num_keys = expansion.keys.size();
  for (const auto& [map, device_map] :
       {std::pair(&expansion.query_coordinates, &launch_.query_coordinates),
        std::pair(&expansion.key_coordinates, &launch_.key_coordinates),
        std::pair(&expansion.queries, &launch_.queries),
        std::pair(&expansion.keys, &launch_.keys)}) {
    if (map->is_even()) {
      device_map->begin = map->At(0);
      device_map->step = map->step();
      continue;
    }
    std::vector<int64_t>& list = lists_.emplace_back();
    for (int64_t i = 0; i < map->size(); ++i) list.push_back(map->At(i));
    ATTNBIAS_RETURN_IF_ERROR(Upload(device, stream, absl::MakeConstSpan(list),
                                    &memory_.emplace_back(), &device_map->list));
  }
  launch_.visible_begin = expansion.visible.begin;
  launch_.visible_end = expansion.visible.end;
  launch_.fill_bits = expansion.fill_bits;
  if (expansion.border != nullptr) {
    ATTNBIAS_RETURN_IF_ERROR(
        Upload(device, stream, absl::MakeConstSpan(expansion.border, 3 * expansion.lanes * size),
               &memory_.emplace_back(), &launch_.border));
  }
  // Waits, since the caller may free the sources next.
  return stream.Wait();
}

absl::Status DenseExpander::TryMake(Range elements, std::byte* out) {
  const int64_t bytes = elements.size() * launch_.element_bytes;
  if (launch_.out.size() < bytes) {
    ATTNBIAS_ASSIGN_OR_RETURN(out_, device_->Allocate(bytes));
    launch_.out = ArrayOf<std::byte>(out_, bytes);
  }
  launch_.first = elements.begin;
  launch_.count = elements.size();
  ATTNBIAS_RETURN_IF_ERROR(stream_->Launch(launch_));
  ATTNBIAS_RETURN_IF_ERROR(stream_->CopyOut(out, out_.get(), bytes));
  ATTNBIAS_RETURN_IF_ERROR(stream_->Wait());
  device_.Made(bytes);
  return absl::OkStatus();
}

absl::Status DeviceVectors::Start(const std::byte* numbers, int64_t bytes) {
  ATTNBIAS_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device_->NewStream());
  ATTNBIAS_ASSIGN_OR_RETURN(numbers_, device_->Allocate(bytes));
  ATTNBIAS_RETURN_IF_ERROR(stream->CopyIn(numbers_.get(), numbers, bytes));
  return stream->Wait();
}

absl::Status DeviceVectors::TryMultiply(const VectorProduct& product, DataType type,
                                        const std::byte* input, std::byte* out) {
  constexpr int64_t kAlignment = 256;
  const int64_t in_bytes = product.rows * product.input_columns() * SizeOf(type);
  const int64_t out_bytes = product.rows * product.output_columns() * SizeOf(type);
  const int64_t out_begin = RoundUp(in_bytes, kAlignment);
  ATTNBIAS_ASSIGN_OR_RETURN(std::unique_ptr<Workspace> work, Take(out_begin + out_bytes));
  std::byte* const memory = work->device.get();
  ATTNBIAS_RETURN_IF_ERROR(work->stream->CopyIn(memory, input, in_bytes));
  ATTNBIAS_RETURN_IF_ERROR(
      work->stream->Launch(ProductLaunch{.product = product,
                                         .type = type,
                                         .vectors = numbers_.get() + product.first * SizeOf(type),
                                         .input = memory,
                                         .out = memory + out_begin}));
  ATTNBIAS_RETURN_IF_ERROR(work->stream->CopyOut(out, memory + out_begin, out_bytes));
  ATTNBIAS_RETURN_IF_ERROR(work->stream->Wait());
  device_.Made(out_bytes);
  const MutexLock lock(mutex_);
  free_.push_back(std::move(work));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DeviceVectors::Workspace>> DeviceVectors::Take(int64_t bytes) {
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

Accelerator::Accelerator(std::unique_ptr<Device> device, const AcceleratorOptions& options,
                         AcceleratorObserver* observer)
    : device_(std::move(device), observer), options_(options) {}

bool Accelerator::Wants(int64_t bytes, bool cpu_writes_nothing) const {
  return device_.works() && bytes >= options_.min_bytes &&
         (!cpu_writes_nothing || options_.replace_slices);
}

int64_t Accelerator::HostBytes(int64_t bytes) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(bytes, kMinBytes))));
}

SharedMemory Accelerator::AllocateHost(int64_t bytes) {
  const int64_t size = HostBytes(bytes);
  SharedMemory memory;
  {
    const MutexLock lock(pool_->mutex);
    if (auto free = pool_->free.extract(size)) {
      memory = std::move(free.mapped());
      pool_->free_bytes -= size;
    }
  }
  if (memory == nullptr) {
    absl::StatusOr<SharedMemory> made = device_->AllocateHost(size);
    if (!device_.Check(made.status())) return nullptr;
    memory = *std::move(made);
  }
  std::byte* const data = memory.get();
  return {data, [pool = pool_, size, memory = std::move(memory)](std::byte*) mutable {
            const MutexLock lock(pool->mutex);
            if (pool->free_bytes + size > kMaxPooledBytes) return;
            pool->free.emplace(size, std::move(memory));
            pool->free_bytes += size;
          }};
}

std::unique_ptr<DenseExpander> Accelerator::MakeExpander(const DenseExpansion& expansion) {
  if (!device_.works()) return nullptr;
  auto expander = std::make_unique<DenseExpander>(&device_);
  return device_.Check(expander->Start(expansion)) ? std::move(expander) : nullptr;
}

std::unique_ptr<DeviceVectors> Accelerator::KeepVectors(const std::byte* numbers, int64_t bytes) {
  if (!device_.works() || !device_->has_products()) return nullptr;
  auto vectors = std::make_unique<DeviceVectors>(&device_);
  return device_.Check(vectors->Start(numbers, bytes)) ? std::move(vectors) : nullptr;
}

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice() {
  // Searches the system's and the build's folders, but not the working directory, since the name
  // has no folder. The library is never closed, since it may contain code that runs at exit.
  void* const backend = dlopen("libattnbias_cuda.so", RTLD_NOW | RTLD_LOCAL);
  void* const open = backend == nullptr ? nullptr : dlsym(backend, kOpenCudaDevice);
  if (open == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("no CUDA device: the CUDA backend is not installed: ", dlerror()));
  }
  absl::StatusOr<std::unique_ptr<Device>> device;
  reinterpret_cast<OpenDeviceFunction*>(open)(&device);
  return device;
}

}  // namespace attnbias
