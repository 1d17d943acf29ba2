// SPDX-License-Identifier: Apache-2.0
#include "core/kernel/cuda/device_accelerator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "core/base/status_macros.h"

namespace attnbias {
namespace {

// Pinned memory that is kept for the next piece of work.
constexpr int64_t kMaxPooledBytes = int64_t{64} << 20;
constexpr int64_t kMinPinnedBytes = int64_t{64} << 10;
// Results of sinusoids that are copied while the next are computed.
constexpr int64_t kSinusoidPieceBytes = int64_t{8} << 20;
// Undecided elements that are made room for: far more than ever were, about one
// in 2^24.
constexpr int64_t kUndecidedFraction = 256;
constexpr int64_t kMinUndecided = 1024;

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

template <typename T>
DeviceArray<T> ArrayOf(const SharedMemory& memory, int64_t count) {
  return {reinterpret_cast<T*>(memory.get()), count};
}

// A copy on the device, some time after this.
template <typename T>
absl::Status Upload(Device& device, Stream& stream, const T* data,
                    int64_t count, SharedMemory* memory,
                    DeviceArray<const T>* array) {
  const auto bytes = count * static_cast<int64_t>(sizeof(T));
  absl::StatusOr<SharedMemory> allocated =
      device.Allocate(std::max<int64_t>(bytes, 1));
  ATTNBIAS_RETURN_IF_ERROR(allocated.status());
  *memory = *std::move(allocated);
  *array = ArrayOf<const T>(*memory, count);
  return stream.CopyIn(memory->get(), reinterpret_cast<const std::byte*>(data),
                       bytes);
}

}  // namespace

// ---------------------------------------------------------------------------
// Pinned memory

// Pinning costs more than a piece's computation, so what was pinned is kept.
class DeviceAccelerator::PinnedPool
    : public std::enable_shared_from_this<PinnedPool> {
 public:
  explicit PinnedPool(Device* device) : device_(*device) {}

  absl::StatusOr<SharedMemory> Allocate(int64_t bytes) {
    const auto size = static_cast<int64_t>(
        std::bit_ceil(static_cast<uint64_t>(std::max(bytes, kMinPinnedBytes))));
    SharedMemory memory = Take(size);
    if (memory == nullptr) {
      absl::StatusOr<SharedMemory> fresh = device_.AllocateHost(size);
      ATTNBIAS_RETURN_IF_ERROR(fresh.status());
      memory = *std::move(fresh);
    }
    std::byte* const data = memory.get();
    return SharedMemory(data, [pool = shared_from_this(), size,
                               memory = std::move(memory)](std::byte*) mutable {
      pool->GiveBack(size, std::move(memory));
    });
  }

 private:
  SharedMemory Take(int64_t size) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = free_.find(size);
    if (found == free_.end()) return nullptr;
    SharedMemory memory = std::move(found->second);
    free_.erase(found);
    free_bytes_ -= size;
    return memory;
  }

  void GiveBack(int64_t size, SharedMemory memory) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (free_bytes_ + size > kMaxPooledBytes) return;
    free_.emplace(size, std::move(memory));
    free_bytes_ += size;
  }

  Device& device_;
  std::mutex mutex_;
  std::multimap<int64_t, SharedMemory> free_;
  int64_t free_bytes_ = 0;
};

// ---------------------------------------------------------------------------
// Dense expansion

class DeviceAccelerator::Expander final : public DenseExpander {
 public:
  explicit Expander(DeviceAccelerator* owner) : owner_(*owner) {}

  absl::Status Start(const DenseExpansion& expansion);

  bool Begin(Range elements, std::byte* out) override {
    return owner_.Check(TryBegin(elements, out));
  }
  bool Finish() override {
    Slot& slot = *under_way_.front();
    under_way_.pop_front();
    if (!owner_.Check(slot.stream->Wait())) return false;
    owner_.observer_.OnMade(slot.made_bytes);
    return true;
  }

 private:
  // A piece under way.
  struct Slot {
    SharedMemory out;
    int64_t out_bytes = 0;
    int64_t made_bytes = 0;
    std::unique_ptr<Stream> stream;  // goes first, and waits
  };

  absl::Status TryBegin(Range elements, std::byte* out);
  absl::Status UploadLine(const IntegerLine& line, Stream& stream,
                          DeviceLine* device_line);

  DeviceAccelerator& owner_;
  // What all launches have in common.
  ExpansionLaunch launch_;
  std::vector<SharedMemory> memory_;
  std::array<Slot, 2> slots_;
  size_t next_ = 0;
  std::deque<Slot*> under_way_;
};

absl::Status DeviceAccelerator::Expander::Start(
    const DenseExpansion& expansion) {
  Device& device = *owner_.device_;
  for (Slot& slot : slots_) {
    absl::StatusOr<std::unique_ptr<Stream>> stream = device.NewStream();
    ATTNBIAS_RETURN_IF_ERROR(stream.status());
    slot.stream = *std::move(stream);
  }
  Stream& stream = *slots_[0].stream;
  const int64_t size = expansion.element_bytes;
  // Lanes side by side, and a word that the last vector may read in vain.
  const int64_t bytes = expansion.lanes * expansion.lane_numbers * size;
  const int64_t words = bytes / 4 + 2;
  absl::StatusOr<SharedMemory> numbers = device.Allocate(words * 4);
  ATTNBIAS_RETURN_IF_ERROR(numbers.status());
  for (int64_t lane = 0; lane < expansion.lanes; ++lane) {
    ATTNBIAS_RETURN_IF_ERROR(
        stream.CopyIn(numbers->get() + lane * expansion.lane_numbers * size,
                      expansion.numbers + lane * expansion.lane_stride_bytes,
                      expansion.lane_numbers * size));
  }
  launch_.numbers = ArrayOf<const uint32_t>(*numbers, words);
  memory_.push_back(*std::move(numbers));
  launch_.lane_numbers = expansion.lane_numbers;
  launch_.element_bytes = static_cast<int>(size);
  launch_.lanes = expansion.lanes;
  launch_.num_queries = static_cast<uint32_t>(expansion.queries.size);
  launch_.num_keys = static_cast<uint32_t>(expansion.keys.size);
  ATTNBIAS_RETURN_IF_ERROR(UploadLine(expansion.query_coordinates, stream,
                                      &launch_.query_coordinates));
  ATTNBIAS_RETURN_IF_ERROR(
      UploadLine(expansion.key_coordinates, stream, &launch_.key_coordinates));
  ATTNBIAS_RETURN_IF_ERROR(
      UploadLine(expansion.queries, stream, &launch_.queries));
  ATTNBIAS_RETURN_IF_ERROR(UploadLine(expansion.keys, stream, &launch_.keys));
  launch_.visible_begin = expansion.visible.begin;
  launch_.visible_end = expansion.visible.end;
  launch_.fill_bits = expansion.fill_bits;
  std::vector<uint32_t> border;
  if (expansion.border != nullptr) {
    border.resize((3 * expansion.lanes * size + 3) / 4);
    std::memcpy(border.data(), expansion.border, 3 * expansion.lanes * size);
    ATTNBIAS_RETURN_IF_ERROR(Upload(device, stream, border.data(),
                                    static_cast<int64_t>(border.size()),
                                    &memory_.emplace_back(), &launch_.border));
  }
  // What was copied from may go; the other slot need not wait.
  return stream.Wait();
}

absl::Status DeviceAccelerator::Expander::UploadLine(const IntegerLine& line,
                                                     Stream& stream,
                                                     DeviceLine* device_line) {
  device_line->begin = line.begin;
  device_line->step = line.step;
  if (line.list == nullptr) return absl::OkStatus();
  return Upload(*owner_.device_, stream, line.list, line.size,
                &memory_.emplace_back(), &device_line->list);
}

absl::Status DeviceAccelerator::Expander::TryBegin(Range elements,
                                                   std::byte* out) {
  Slot& slot = slots_[next_];
  slot.made_bytes = elements.size() * launch_.element_bytes;
  const int64_t bytes = RoundUp(slot.made_bytes, sizeof(Vector16));
  if (slot.out_bytes < bytes) {
    absl::StatusOr<SharedMemory> memory = owner_.device_->Allocate(bytes);
    ATTNBIAS_RETURN_IF_ERROR(memory.status());
    slot.out = *std::move(memory);
    slot.out_bytes = bytes;
  }
  ExpansionLaunch launch = launch_;
  launch.first = elements.begin;
  launch.count = elements.size();
  launch.out = ArrayOf<Vector16>(slot.out, bytes / sizeof(Vector16));
  ATTNBIAS_RETURN_IF_ERROR(slot.stream->Launch(launch));
  ATTNBIAS_RETURN_IF_ERROR(
      slot.stream->CopyOut(out, slot.out.get(), slot.made_bytes));
  under_way_.push_back(&slot);
  next_ = (next_ + 1) % slots_.size();
  return absl::OkStatus();
}

std::unique_ptr<DenseExpander> DeviceAccelerator::MakeExpander(
    const DenseExpansion& expansion) {
  constexpr int64_t kMost = ExpansionLaunch::kMaxCount;
  if (broken_ || expansion.keys.size > kMost ||
      expansion.queries.size > kMost / expansion.lanes) {
    return nullptr;
  }
  auto expander = std::make_unique<Expander>(this);
  if (!Check(expander->Start(expansion))) return nullptr;
  return expander;
}

// ---------------------------------------------------------------------------
// Sinusoids

namespace {

// One of two pieces that take turns.
struct SinusoidSlot {
  SharedMemory out;
  SharedMemory undecided;  // their count, then they
  SharedMemory host;       // pinned: the elements, then the undecided
  int64_t first_row = 0;
  int64_t rows = 0;
  std::unique_ptr<Stream> stream;  // goes first, and waits
};

ElementFormat FormatOf(DataType type) {
  switch (type) {
    case DataType::kBF16:
      return ElementFormat::kBf16;
    case DataType::kF16:
      return ElementFormat::kF16;
    default:
      return ElementFormat::kF32;
  }
}

// Many blocks' sinusoids in pieces of whole blocks.
class SinusoidFill {
 public:
  SinusoidFill(Device* device, const SinusoidBlocks& blocks)
      : device_(*device),
        blocks_(blocks),
        row_bytes_(blocks.block.width * SizeOf(blocks.type)),
        piece_blocks_(std::max<int64_t>(
            1, kSinusoidPieceBytes / (row_bytes_ * blocks.block_rows))),
        piece_rows_(
            std::min(piece_blocks_ * blocks.block_rows, blocks.block.rows)),
        room_(std::max(kMinUndecided, piece_rows_ * blocks.block.width /
                                          kUndecidedFraction)) {}

  // RESOURCE_EXHAUSTED also where more are undecided than there is room for.
  template <typename AllocatePinned>
  absl::Status Run(AllocatePinned allocate_pinned, std::byte* out,
                   std::vector<int64_t>* undecided) {
    for (SinusoidSlot& slot : slots_) {
      absl::StatusOr<std::unique_ptr<Stream>> stream = device_.NewStream();
      ATTNBIAS_RETURN_IF_ERROR(stream.status());
      slot.stream = *std::move(stream);
      ATTNBIAS_RETURN_IF_ERROR(
          Allocate(device_.Allocate(piece_rows_ * row_bytes_), &slot.out));
      ATTNBIAS_RETURN_IF_ERROR(
          Allocate(device_.Allocate(undecided_bytes()), &slot.undecided));
      ATTNBIAS_RETURN_IF_ERROR(Allocate(
          allocate_pinned(undecided_bytes() + piece_rows_ * row_bytes_),
          &slot.host));
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
  static absl::Status Allocate(absl::StatusOr<SharedMemory> memory,
                               SharedMemory* place) {
    if (memory.ok()) *place = *std::move(memory);
    return memory.status();
  }

  int64_t undecided_bytes() const { return (room_ + 1) * 4; }

  absl::Status UploadAll() {
    const SinusoidBlock& block = blocks_.block;
    Stream& stream = *slots_[0].stream;
    const int64_t anchors =
        RoundUp(block.rows, blocks_.block_rows) / blocks_.block_rows;
    const auto upload = [&](const double* data, int64_t rows,
                            DeviceArray<const double>* array) {
      return Upload(device_, stream, data, rows * block.pairs,
                    &memory_.emplace_back(), array);
    };
    ATTNBIAS_RETURN_IF_ERROR(
        upload(block.anchor_sin, anchors, &launch_.anchor_sin));
    ATTNBIAS_RETURN_IF_ERROR(
        upload(block.anchor_cos, anchors, &launch_.anchor_cos));
    ATTNBIAS_RETURN_IF_ERROR(
        upload(block.sin_bound, anchors, &launch_.sin_bound));
    const int64_t rotations = std::min(blocks_.block_rows, block.rows);
    ATTNBIAS_RETURN_IF_ERROR(
        upload(block.rotation_sin, rotations, &launch_.rotation_sin));
    ATTNBIAS_RETURN_IF_ERROR(
        upload(block.rotation_cos, rotations, &launch_.rotation_cos));
    launch_.cos_bound = block.cos_bound;
    launch_.block_rows = blocks_.block_rows;
    launch_.pairs = block.pairs;
    launch_.sines = block.sines;
    launch_.cosines = block.cosines;
    launch_.width = block.width;
    launch_.pair_stride = block.pair_stride;
    launch_.cos_offset = block.cos_offset;
    launch_.format = FormatOf(blocks_.type);
    return stream.Wait();
  }

  absl::Status Begin(int64_t row) {
    SinusoidSlot& slot = slots_[next_];
    next_ ^= 1;
    slot.first_row = row;
    slot.rows = std::min(piece_rows_, blocks_.block.rows - row);
    SinusoidLaunch launch = launch_;
    const int64_t anchor = row / blocks_.block_rows * launch.pairs;
    for (auto* array :
         {&launch.anchor_sin, &launch.anchor_cos, &launch.sin_bound}) {
      *array = {&(*array)[anchor], array->size() - anchor};
    }
    launch.rows = slot.rows;
    const int64_t elements = slot.rows * launch.width;
    if (launch.format == ElementFormat::kF32) {
      launch.out_f32 = ArrayOf<uint32_t>(slot.out, elements);
    } else {
      launch.out_16 = ArrayOf<uint16_t>(slot.out, elements);
    }
    auto* const counter = reinterpret_cast<uint32_t*>(slot.undecided.get());
    launch.undecided_count = {counter, 1};
    launch.undecided = {counter + 1, room_};
    Stream& stream = *slot.stream;
    ATTNBIAS_RETURN_IF_ERROR(
        stream.SetZero(slot.undecided.get(), sizeof(uint32_t)));
    ATTNBIAS_RETURN_IF_ERROR(stream.Launch(launch));
    ATTNBIAS_RETURN_IF_ERROR(stream.CopyOut(
        slot.host.get(), slot.undecided.get(), undecided_bytes()));
    return stream.CopyOut(slot.host.get() + undecided_bytes(), slot.out.get(),
                          slot.rows * row_bytes_);
  }

  // The piece begun before the last, or the last when there is no other.
  absl::Status Finish(std::byte* out, std::vector<int64_t>* undecided) {
    SinusoidSlot& slot = slots_[finished_];
    finished_ ^= 1;
    ATTNBIAS_RETURN_IF_ERROR(slot.stream->Wait());
    std::memcpy(out + slot.first_row * row_bytes_,
                slot.host.get() + undecided_bytes(), slot.rows * row_bytes_);
    const auto* const counter =
        reinterpret_cast<const uint32_t*>(slot.host.get());
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

bool DeviceAccelerator::FillSinusoids(const SinusoidBlocks& blocks,
                                      std::byte* out,
                                      std::vector<int64_t>* undecided) {
  // A block's elements are counted in 32 bits.
  constexpr int64_t kMost = int64_t{1} << 31;
  if (broken_ || blocks.block_rows * blocks.block.width > kMost) return false;
  SinusoidFill fill(device_.get(), blocks);
  const bool done =
      Check(fill.Run([this](int64_t bytes) { return pool_->Allocate(bytes); },
                     out, undecided));
  if (done) {
    observer_.OnMade(blocks.block.rows * blocks.block.width *
                     SizeOf(blocks.type));
  }
  return done;
}

// ---------------------------------------------------------------------------
// Products

class DeviceAccelerator::Vectors final : public DeviceVectors {
 public:
  Vectors(DeviceAccelerator* owner, SharedMemory numbers)
      : owner_(*owner), numbers_(std::move(numbers)) {}

  bool Multiply(const VectorProduct& product, const float* input,
                float* out) override {
    return owner_.Check(TryMultiply(product, input, out));
  }
  bool Multiply(const VectorProduct& product, const double* input,
                double* out) override {
    return owner_.Check(TryMultiply(product, input, out));
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
    owner_.observer_.OnMade(out_bytes);
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
      absl::StatusOr<std::unique_ptr<Stream>> stream =
          owner_.device_->NewStream();
      ATTNBIAS_RETURN_IF_ERROR(stream.status());
      work->stream = *std::move(stream);
    }
    if (work->bytes < bytes) {
      absl::StatusOr<SharedMemory> memory = owner_.device_->Allocate(bytes);
      ATTNBIAS_RETURN_IF_ERROR(memory.status());
      work->device = *std::move(memory);
      work->bytes = bytes;
    }
    return work;
  }

  DeviceAccelerator& owner_;
  const SharedMemory numbers_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

std::unique_ptr<DeviceVectors> DeviceAccelerator::KeepVectors(
    const std::byte* numbers, int64_t bytes) {
  if (broken_ || !device_->has_products()) return nullptr;
  const auto keep = [&]() -> absl::StatusOr<SharedMemory> {
    absl::StatusOr<std::unique_ptr<Stream>> stream = device_->NewStream();
    ATTNBIAS_RETURN_IF_ERROR(stream.status());
    absl::StatusOr<SharedMemory> memory = device_->Allocate(bytes);
    ATTNBIAS_RETURN_IF_ERROR(memory.status());
    ATTNBIAS_RETURN_IF_ERROR((*stream)->CopyIn(memory->get(), numbers, bytes));
    ATTNBIAS_RETURN_IF_ERROR((*stream)->Wait());
    return memory;
  };
  absl::StatusOr<SharedMemory> kept = keep();
  if (!Check(kept.status())) return nullptr;
  return std::make_unique<Vectors>(this, *std::move(kept));
}

// ---------------------------------------------------------------------------
// What they have in common

DeviceAccelerator::DeviceAccelerator(std::unique_ptr<Device> device,
                                     const AcceleratorOptions& options,
                                     AcceleratorObserver* observer)
    : device_(std::move(device)),
      options_(options),
      observer_(*observer),
      pool_(std::make_shared<PinnedPool>(device_.get())) {}

bool DeviceAccelerator::Wants(int64_t bytes, bool cpu_writes_nothing) const {
  return !broken_ && bytes >= options_.min_bytes &&
         (!cpu_writes_nothing || options_.replace_slices);
}

std::shared_ptr<std::byte> DeviceAccelerator::AllocateHost(int64_t bytes) {
  absl::StatusOr<SharedMemory> memory = pool_->Allocate(bytes);
  return Check(memory.status()) ? *std::move(memory) : nullptr;
}

bool DeviceAccelerator::Check(const absl::Status& status) {
  if (status.ok()) return true;
  if (absl::IsResourceExhausted(status)) {
    if (!was_full_.exchange(true)) observer_.OnFallback(status, false);
  } else if (!broken_.exchange(true)) {
    observer_.OnFallback(status, true);
  }
  return false;
}

}  // namespace attnbias
