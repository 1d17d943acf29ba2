// SPDX-License-Identifier: Apache-2.0
// Sinusoids on a device, in pieces of whole blocks.
#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include "core/base/errors.h"
#include "core/kernel/cuda/accelerator.h"
#include "core/kernel/cuda/device.h"

namespace attnbias {
namespace {

// Results that are copied while the next are computed.
constexpr int64_t kDevicePieceBytes = int64_t{8} << 20;
// There is room for this part of the elements to be undecided. About one in
// 2^24 is.
constexpr int64_t kUndecidedFraction = 256;
constexpr int64_t kMinUndecided = 1024;

// One of two pieces that take turns.
struct SinusoidSlot {
  SharedMemory out;
  SharedMemory undecided;  // their count, then they
  SharedMemory host;       // pinned: the elements, then the undecided
  int64_t first_row = 0;
  int64_t rows = 0;
  std::unique_ptr<Stream> stream;  // goes first, and waits
};

// Many blocks' sinusoids in pieces of whole blocks.
class SinusoidFill {
 public:
  SinusoidFill(Device* device, const SinusoidBlocks& blocks)
      : device_(*device),
        blocks_(blocks),
        row_bytes_(blocks.block.width * SizeOf(blocks.type)),
        piece_blocks_(std::max<int64_t>(
            1, kDevicePieceBytes / (row_bytes_ * blocks.block_rows))),
        piece_rows_(
            std::min(piece_blocks_ * blocks.block_rows, blocks.block.rows)),
        room_(std::max(kMinUndecided, piece_rows_ * blocks.block.width /
                                          kUndecidedFraction)) {}

  absl::Status Fill(PinnedPool& pool, std::byte* out,
                    std::vector<int64_t>* undecided) {
    for (SinusoidSlot& slot : slots_) {
      ATTNBIAS_ASSIGN_OR_RETURN(slot.stream, device_.NewStream());
      ATTNBIAS_ASSIGN_OR_RETURN(slot.out,
                                device_.Allocate(piece_rows_ * row_bytes_));
      ATTNBIAS_ASSIGN_OR_RETURN(slot.undecided,
                                device_.Allocate(undecided_bytes()));
      ATTNBIAS_ASSIGN_OR_RETURN(
          slot.host,
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
    const int64_t anchors =
        RoundUp(block.rows, blocks_.block_rows) / blocks_.block_rows;
    const int64_t rotations = std::min(blocks_.block_rows, block.rows);
    for (const auto& [data, rows, array] :
         {std::tuple(block.anchor_sin, anchors, &launch_.anchor_sin),
          std::tuple(block.anchor_cos, anchors, &launch_.anchor_cos),
          std::tuple(block.sin_bound, anchors, &launch_.sin_bound),
          std::tuple(block.rotation_sin, rotations, &launch_.rotation_sin),
          std::tuple(block.rotation_cos, rotations, &launch_.rotation_cos)}) {
      ATTNBIAS_RETURN_IF_ERROR(
          Upload(device_, stream, absl::MakeConstSpan(data, rows * block.pairs),
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
    for (auto* array :
         {&launch.anchor_sin, &launch.anchor_cos, &launch.sin_bound}) {
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

absl::Status Accelerator::TryFillSinusoids(const SinusoidBlocks& blocks,
                                           std::byte* out,
                                           std::vector<int64_t>* undecided) {
  return SinusoidFill(&*device_, blocks).Fill(*pool_, out, undecided);
}

}  // namespace attnbias
