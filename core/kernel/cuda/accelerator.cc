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

absl::StatusOr<SharedMemory> PinnedPool::Allocate(int64_t bytes) {
  const auto size =
      static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(bytes, kMinBytes))));
  SharedMemory memory;
  {
    const MutexLock lock(mutex_);
    if (auto free = free_.extract(size)) {
      memory = std::move(free.mapped());
      free_bytes_ -= size;
    }
  }
  if (memory == nullptr) {
    ATTNBIAS_ASSIGN_OR_RETURN(memory, device_.AllocateHost(size));
  }
  std::byte* const data = memory.get();
  return SharedMemory(
      data, [pool = shared_from_this(), size, memory = std::move(memory)](std::byte*) mutable {
        const MutexLock lock(pool->mutex_);
        if (pool->free_bytes_ + size > kMaxPooledBytes) return;
        pool->free_.emplace(size, std::move(memory));
        pool->free_bytes_ += size;
      });
}

absl::Status DenseExpander::Start(const DenseExpansion& expansion) {
  Device& device = *device_;
  for (Slot& slot : slots_) {
    ATTNBIAS_ASSIGN_OR_RETURN(slot.stream, device.NewStream());
  }
  Stream& stream = *slots_[0].stream;
  const int64_t size = expansion.element_bytes;
  // Lanes side by side, and a word that the last vector may read.
  const int64_t bytes = expansion.lanes * expansion.lane_numbers * size;
  const int64_t words = bytes / 4 + 2;
  ATTNBIAS_ASSIGN_OR_RETURN(SharedMemory numbers, device.Allocate(words * 4));
  for (int64_t lane = 0; lane < expansion.lanes; ++lane) {
    ATTNBIAS_RETURN_IF_ERROR(stream.CopyIn(numbers.get() + lane * expansion.lane_numbers * size,
                                           expansion.numbers + lane * expansion.lane_stride_bytes,
                                           expansion.lane_numbers * size));
  }
  launch_.numbers = ArrayOf<const uint32_t>(numbers, words);
  memory_.push_back(std::move(numbers));
  launch_.lane_numbers = expansion.lane_numbers;
  launch_.element_bytes = static_cast<int>(size);
  launch_.num_queries = static_cast<uint32_t>(expansion.queries.size());
  launch_.num_keys = static_cast<uint32_t>(expansion.keys.size());
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
  std::vector<uint32_t> border;
  if (expansion.border != nullptr) {
    border.resize((3 * expansion.lanes * size + 3) / 4);
    std::memcpy(border.data(), expansion.border, 3 * expansion.lanes * size);
    ATTNBIAS_RETURN_IF_ERROR(Upload(device, stream, absl::MakeConstSpan(border),
                                    &memory_.emplace_back(), &launch_.border));
  }
  // The sources may then be freed, and the other slot need not wait.
  return stream.Wait();
}

absl::Status DenseExpander::TryBegin(Range elements, std::byte* out) {
  Slot& slot = slots_[begun_ % slots_.size()];
  slot.made_bytes = elements.size() * launch_.element_bytes;
  const int64_t bytes = RoundUp(slot.made_bytes, sizeof(Vector16));
  if (slot.out_bytes < bytes) {
    ATTNBIAS_ASSIGN_OR_RETURN(slot.out, device_->Allocate(bytes));
    slot.out_bytes = bytes;
  }
  ExpansionLaunch launch = launch_;
  launch.first = elements.begin;
  launch.count = elements.size();
  launch.out = ArrayOf<Vector16>(slot.out, bytes / static_cast<int64_t>(sizeof(Vector16)));
  ATTNBIAS_RETURN_IF_ERROR(slot.stream->Launch(launch));
  ATTNBIAS_RETURN_IF_ERROR(slot.stream->CopyOut(out, slot.out.get(), slot.made_bytes));
  ++begun_;
  return absl::OkStatus();
}

bool DenseExpander::Finish() {
  Slot& slot = slots_[finished_++ % slots_.size()];
  if (!device_.Check(slot.stream->Wait())) return false;
  device_.Made(slot.made_bytes);
  return true;
}

namespace {

// Size of a piece, which is copied while the next one is computed.
constexpr int64_t kDevicePieceBytes = int64_t{8} << 20;
// One in this many elements may be undecided; about one in 2^24 actually is.
constexpr int64_t kUndecidedFraction = 256;
constexpr int64_t kMinUndecided = 1024;

// One of two alternating pieces.
struct SinusoidSlot {
  SharedMemory out;
  SharedMemory undecided;  // the count, then the indices
  SharedMemory host;       // pinned: the elements, then the undecided indices
  int64_t first_row = 0;
  int64_t rows = 0;
  std::unique_ptr<Stream> stream;  // destroyed first; waits
};

// Computes the sinusoids of many blocks, in pieces of whole blocks.
class SinusoidFill {
 public:
  SinusoidFill(Device* device, const SinusoidBlocks& blocks)
      : device_(*device),
        blocks_(blocks),
        row_bytes_(blocks.block.width * SizeOf(blocks.type)),
        piece_blocks_(std::max<int64_t>(1, kDevicePieceBytes / (row_bytes_ * blocks.block_rows))),
        piece_rows_(std::min(piece_blocks_ * blocks.block_rows, blocks.block.rows)),
        room_(std::max(kMinUndecided, piece_rows_ * blocks.block.width / kUndecidedFraction)) {}

  absl::Status Fill(PinnedPool& pool, std::byte* out, std::vector<int64_t>* undecided) {
    for (SinusoidSlot& slot : slots_) {
      ATTNBIAS_ASSIGN_OR_RETURN(slot.stream, device_.NewStream());
      ATTNBIAS_ASSIGN_OR_RETURN(slot.out, device_.Allocate(piece_rows_ * row_bytes_));
      ATTNBIAS_ASSIGN_OR_RETURN(slot.undecided, device_.Allocate(undecided_bytes()));
      ATTNBIAS_ASSIGN_OR_RETURN(slot.host,
                                pool.Allocate(undecided_bytes() + piece_rows_ * row_bytes_));
    }
    ATTNBIAS_RETURN_IF_ERROR(UploadAll());
    const int64_t rows = blocks_.block.rows;
    for (int64_t row = 0; row < rows + piece_rows_; row += piece_rows_) {
      if (row < rows) ATTNBIAS_RETURN_IF_ERROR(Begin(row));
      if (row > 0) ATTNBIAS_RETURN_IF_ERROR(Finish(out, undecided));
    }
    return absl::OkStatus();
  }

 private:
  int64_t undecided_bytes() const { return (room_ + 1) * 4; }

  absl::Status UploadAll() {
    const SinusoidBlock& block = blocks_.block;
    Stream& stream = *slots_[0].stream;
    const int64_t anchors = RoundUp(block.rows, blocks_.block_rows) / blocks_.block_rows;
    const int64_t rotations = std::min(blocks_.block_rows, block.rows);
    for (const auto& [data, rows, array] :
         {std::tuple(block.anchor_sin, anchors, &launch_.anchor_sin),
          std::tuple(block.anchor_cos, anchors, &launch_.anchor_cos),
          std::tuple(block.sin_bound, anchors, &launch_.sin_bound),
          std::tuple(block.rotation_sin, rotations, &launch_.rotation_sin),
          std::tuple(block.rotation_cos, rotations, &launch_.rotation_cos)}) {
      ATTNBIAS_RETURN_IF_ERROR(Upload(device_, stream,
                                      absl::MakeConstSpan(data, rows * block.pairs),
                                      &memory_.emplace_back(), array));
    }
    launch_.cos_bound = block.cos_bound;
    launch_.block_rows = blocks_.block_rows;
    launch_.pairs = block.pairs;
    launch_.sines = block.sines;
    launch_.cosines = block.cosines;
    launch_.width = block.width;
    launch_.pair_stride = block.pair_stride;
    launch_.cos_offset = block.cos_offset;
    launch_.type = blocks_.type;
    return stream.Wait();
  }

  absl::Status Begin(int64_t row) {
    SinusoidSlot& slot = slots_[next_];
    next_ ^= 1;
    slot.first_row = row;
    slot.rows = std::min(piece_rows_, blocks_.block.rows - row);
    SinusoidLaunch launch = launch_;
    const int64_t anchor = row / blocks_.block_rows * launch.pairs;
    for (auto* array : {&launch.anchor_sin, &launch.anchor_cos, &launch.sin_bound}) {
      *array = {&(*array)[anchor], array->size() - anchor};
    }
    launch.rows = slot.rows;
    const int64_t elements = slot.rows * launch.width;
    if (launch.type == DataType::kF32) {
      launch.out_f32 = ArrayOf<uint32_t>(slot.out, elements);
    } else {
      launch.out_16 = ArrayOf<uint16_t>(slot.out, elements);
    }
    auto* const counter = reinterpret_cast<uint32_t*>(slot.undecided.get());
    launch.undecided_count = {counter, 1};
    launch.undecided = {counter + 1, room_};
    Stream& stream = *slot.stream;
    ATTNBIAS_RETURN_IF_ERROR(stream.SetZero(slot.undecided.get(), sizeof(uint32_t)));
    ATTNBIAS_RETURN_IF_ERROR(stream.Launch(launch));
    ATTNBIAS_RETURN_IF_ERROR(
        stream.CopyOut(slot.host.get(), slot.undecided.get(), undecided_bytes()));
    return stream.CopyOut(slot.host.get() + undecided_bytes(), slot.out.get(),
                          slot.rows * row_bytes_);
  }

  // Finishes the oldest pending piece.
  absl::Status Finish(std::byte* out, std::vector<int64_t>* undecided) {
    SinusoidSlot& slot = slots_[finished_];
    finished_ ^= 1;
    ATTNBIAS_RETURN_IF_ERROR(slot.stream->Wait());
    std::memcpy(out + slot.first_row * row_bytes_, slot.host.get() + undecided_bytes(),
                slot.rows * row_bytes_);
    const auto* const counter = reinterpret_cast<const uint32_t*>(slot.host.get());
    if (*counter > room_) {
      return absl::ResourceExhaustedError("no room for undecided elements");
    }
    for (uint32_t i = 1; i <= *counter; ++i) {
      undecided->push_back(slot.first_row * blocks_.block.width + counter[i]);
    }
    return absl::OkStatus();
  }

  Device& device_;
  const SinusoidBlocks& blocks_;
  const int64_t row_bytes_;
  const int64_t piece_blocks_;
  const int64_t piece_rows_;
  const int64_t room_;
  SinusoidLaunch launch_;
  std::vector<SharedMemory> memory_;
  std::array<SinusoidSlot, 2> slots_;
  int next_ = 0;
  int finished_ = 0;
};

}  // namespace

absl::Status DeviceVectors::Start(const std::byte* numbers, int64_t bytes) {
  ATTNBIAS_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device_->NewStream());
  ATTNBIAS_ASSIGN_OR_RETURN(numbers_, device_->Allocate(bytes));
  ATTNBIAS_RETURN_IF_ERROR(stream->CopyIn(numbers_.get(), numbers, bytes));
  return stream->Wait();
}

template <typename T>
bool DeviceVectors::Multiply(const VectorProduct& product, const T* input, T* out) {
  return device_.Check(TryMultiply(product, input, out));
}

template <typename T>
absl::Status DeviceVectors::TryMultiply(const VectorProduct& product, const T* input, T* out) {
  constexpr int64_t kAlignment = 256;
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  const int64_t in_bytes = product.rows * product.input_columns() * kSize;
  const int64_t out_bytes = product.rows * product.output_columns() * kSize;
  const int64_t out_begin = RoundUp(in_bytes, kAlignment);
  ATTNBIAS_ASSIGN_OR_RETURN(std::unique_ptr<Workspace> work, Take(out_begin + out_bytes));
  std::byte* const memory = work->device.get();
  ATTNBIAS_RETURN_IF_ERROR(
      work->stream->CopyIn(memory, reinterpret_cast<const std::byte*>(input), in_bytes));
  ATTNBIAS_RETURN_IF_ERROR(work->stream->Launch(
      ProductLaunch<T>{.product = product,
                       .vectors = reinterpret_cast<const T*>(numbers_.get()) + product.first,
                       .input = reinterpret_cast<const T*>(memory),
                       .out = reinterpret_cast<T*>(memory + out_begin)}));
  ATTNBIAS_RETURN_IF_ERROR(
      work->stream->CopyOut(reinterpret_cast<std::byte*>(out), memory + out_begin, out_bytes));
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

template bool DeviceVectors::Multiply(const VectorProduct& product, const float* input, float* out);
template bool DeviceVectors::Multiply(const VectorProduct& product, const double* input,
                                      double* out);

Accelerator::Accelerator(std::unique_ptr<Device> device, const AcceleratorOptions& options,
                         AcceleratorObserver* observer)
    : device_(std::move(device), observer),
      options_(options),
      pool_(std::make_shared<PinnedPool>(&*device_)) {}

bool Accelerator::Wants(int64_t bytes, bool cpu_writes_nothing) const {
  return device_.works() && bytes >= options_.min_bytes &&
         (!cpu_writes_nothing || options_.replace_slices);
}

std::shared_ptr<std::byte> Accelerator::AllocateHost(int64_t bytes) {
  absl::StatusOr<SharedMemory> memory = pool_->Allocate(bytes);
  return device_.Check(memory.status()) ? *std::move(memory) : nullptr;
}

std::unique_ptr<DenseExpander> Accelerator::MakeExpander(const DenseExpansion& expansion) {
  constexpr int64_t kMost = ExpansionLaunch::kMaxCount;
  if (!device_.works() || expansion.keys.size() > kMost ||
      expansion.queries.size() > kMost / expansion.lanes) {
    return nullptr;
  }
  auto expander = std::make_unique<DenseExpander>(&device_);
  return device_.Check(expander->Start(expansion)) ? std::move(expander) : nullptr;
}

bool Accelerator::FillSinusoids(const SinusoidBlocks& blocks, std::byte* out,
                                std::vector<int64_t>* undecided) {
  // Elements of a block are counted in 32 bits.
  constexpr int64_t kMost = int64_t{1} << 31;
  const SinusoidBlock& block = blocks.block;
  if (!device_.works() || blocks.block_rows * block.width > kMost ||
      !device_.Check(SinusoidFill(&*device_, blocks).Fill(*pool_, out, undecided))) {
    return false;
  }
  device_.Made(block.rows * block.width * SizeOf(blocks.type));
  return true;
}

std::unique_ptr<DeviceVectors> Accelerator::KeepVectors(const std::byte* numbers, int64_t bytes) {
  if (!device_.works() || !device_->has_products()) return nullptr;
  auto vectors = std::make_unique<DeviceVectors>(&device_);
  return device_.Check(vectors->Start(numbers, bytes)) ? std::move(vectors) : nullptr;
}

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice() {
  // Searches the folders of the system and of the build: a name without a folder is not looked up
  // in the working directory. Never closed, since it may contain code that runs at exit.
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
