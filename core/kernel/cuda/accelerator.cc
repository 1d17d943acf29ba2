// SPDX-License-Identifier: Apache-2.0
#include "core/kernel/cuda/accelerator.h"

#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"

namespace attnbias {
namespace {

constexpr int64_t kMaxPooledBytes = int64_t{64} << 20;
constexpr int64_t kMinBytes = int64_t{64} << 10;

}  // namespace

absl::Status DenseExpander::Start(const DenseExpansion& expansion) {
  Device& device = *device_;
  ATTNBIAS_ASSIGN_OR_RETURN(stream_, device.NewStream());
  Stream& stream = *stream_;
  const int64_t size = expansion.element_bytes;
  const int64_t bytes = expansion.lanes * expansion.lane_numbers * size;
  ATTNBIAS_ASSIGN_OR_RETURN(SharedMemory numbers, device.Allocate(bytes));
  for (int64_t lane = 0; lane < expansion.lanes; ++lane) {
    ATTNBIAS_RETURN_IF_ERROR(stream.CopyIn(numbers.get() + lane * expansion.lane_numbers * size,
                                           expansion.numbers + lane * expansion.lane_stride_bytes,
                                           expansion.lane_numbers * size));
  }
  launch_.numbers = ArrayOf<const std::byte>(numbers, bytes);
  memory_.push_back(std::move(numbers));
  launch_.lane_numbers = expansion.lane_numbers;
  launch_.element_bytes = size;
  launch_.num_queries = expansion.queries.size();
  launch_.num_keys = expansion.keys.size();
  std::deque<std::vector<int64_t>> lists;
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
    std::vector<int64_t>& list = lists.emplace_back();
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

namespace {

constexpr int64_t kDevicePieceBytes = int64_t{8} << 20;
// One in this many elements may be undecided; about one in 2^24 actually is.
constexpr int64_t kUndecidedFraction = 256;
constexpr int64_t kMinUndecided = 1024;

// Copies the arrays of the launch's source to `memory`.
absl::Status UploadArrays(Device& device, Stream& stream, SinusoidLaunch& launch,
                          std::vector<SharedMemory>& memory) {
  const SinusoidBlock& block = launch.source.block;
  const int64_t block_rows = launch.source.block_rows;
  const int64_t anchors = RoundUp(block.rows, block_rows) / block_rows;
  const int64_t rotations = std::min(block_rows, block.rows);
  for (const auto& [data, rows, array] :
       {std::tuple(block.anchor_sin, anchors, &launch.anchor_sin),
        std::tuple(block.anchor_cos, anchors, &launch.anchor_cos),
        std::tuple(block.sin_bound, anchors, &launch.sin_bound),
        std::tuple(block.rotation_sin, rotations, &launch.rotation_sin),
        std::tuple(block.rotation_cos, rotations, &launch.rotation_cos)}) {
    ATTNBIAS_RETURN_IF_ERROR(Upload(device, stream, absl::MakeConstSpan(data, rows * block.pairs),
                                    &memory.emplace_back(), array));
  }
  return stream.Wait();
}

// Computes the sinusoids of many blocks, in pieces of whole blocks.
absl::Status FillInPieces(Device& device, const SinusoidBlocks& blocks, std::byte* out,
                          std::vector<int64_t>* undecided) {
  const SinusoidBlock& block = blocks.block;
  const int64_t row_bytes = block.width * SizeOf(blocks.type);
  const int64_t piece_blocks =
      std::max<int64_t>(1, kDevicePieceBytes / (row_bytes * blocks.block_rows));
  const int64_t piece_rows = std::min(piece_blocks * blocks.block_rows, block.rows);
  // The count, then the indices.
  std::vector<uint32_t> found(
      1 + std::max(kMinUndecided, piece_rows * block.width / kUndecidedFraction));
  auto* const found_bytes = reinterpret_cast<std::byte*>(found.data());
  const auto found_size = static_cast<int64_t>(found.size() * sizeof(found[0]));
  std::vector<SharedMemory> memory;
  ATTNBIAS_ASSIGN_OR_RETURN(const SharedMemory elements, device.Allocate(piece_rows * row_bytes));
  ATTNBIAS_ASSIGN_OR_RETURN(const SharedMemory indices, device.Allocate(found_size));
  // Destroyed first; the destructor waits for the stream's work.
  ATTNBIAS_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device.NewStream());
  SinusoidLaunch whole = {.source = blocks};
  ATTNBIAS_RETURN_IF_ERROR(UploadArrays(device, *stream, whole, memory));
  for (int64_t row = 0; row < block.rows; row += piece_rows) {
    SinusoidLaunch launch = whole;
    launch.source.block.rows = std::min(piece_rows, block.rows - row);
    const int64_t anchor = row / blocks.block_rows * block.pairs;
    for (auto* array : {&launch.anchor_sin, &launch.anchor_cos, &launch.sin_bound}) {
      *array = {&(*array)[anchor], array->size() - anchor};
    }
    const int64_t bytes = launch.source.block.rows * row_bytes;
    launch.out = ArrayOf<std::byte>(elements, bytes);
    launch.undecided = ArrayOf<uint32_t>(indices, std::ssize(found));
    ATTNBIAS_RETURN_IF_ERROR(stream->SetZero(indices.get(), sizeof(found[0])));
    ATTNBIAS_RETURN_IF_ERROR(stream->Launch(launch));
    ATTNBIAS_RETURN_IF_ERROR(stream->CopyOut(out + row * row_bytes, elements.get(), bytes));
    ATTNBIAS_RETURN_IF_ERROR(stream->CopyOut(found_bytes, indices.get(), found_size));
    ATTNBIAS_RETURN_IF_ERROR(stream->Wait());
    const uint32_t count = found[0];
    if (count >= found.size()) {
      return absl::ResourceExhaustedError("no room for undecided elements");
    }
    for (uint32_t i = 1; i <= count; ++i) undecided->push_back(row * block.width + found[i]);
  }
  return absl::OkStatus();
}

}  // namespace

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

bool Accelerator::FillSinusoids(const SinusoidBlocks& blocks, std::byte* out,
                                std::vector<int64_t>* undecided) {
  if (!device_.works() || !device_.Check(FillInPieces(*device_, blocks, out, undecided))) {
    return false;
  }
  device_.Made(blocks.block.rows * blocks.block.width * SizeOf(blocks.type));
  return true;
}

std::unique_ptr<DeviceVectors> Accelerator::KeepVectors(const std::byte* numbers, int64_t bytes) {
  if (!device_.works() || !device_->has_products()) return nullptr;
  auto vectors = std::make_unique<DeviceVectors>(&device_);
  return device_.Check(vectors->Start(numbers, bytes)) ? std::move(vectors) : nullptr;
}

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice() {
  // Searches the folders of the system and of the build, but not the working directory, since the
  // name has no folder. The library is never closed, since it may contain code that runs at exit.
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
