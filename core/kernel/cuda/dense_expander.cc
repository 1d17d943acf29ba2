// SPDX-License-Identifier: Apache-2.0
// Dense expansion on a device.
#include <cstring>
#include <utility>

#include "core/base/errors.h"
#include "core/kernel/cuda/accelerator.h"
#include "core/kernel/cuda/device.h"

namespace attnbias {

absl::Status DenseExpander::Start(const DenseExpansion& expansion) {
  Device& device = *device_;
  for (Slot& slot : slots_) {
    ATTNBIAS_ASSIGN_OR_RETURN(slot.stream, device.NewStream());
  }
  Stream& stream = *slots_[0].stream;
  const int64_t size = expansion.element_bytes;
  // Lanes side by side, and a word that the last vector may read in vain.
  const int64_t bytes = expansion.lanes * expansion.lane_numbers * size;
  const int64_t words = bytes / 4 + 2;
  ATTNBIAS_ASSIGN_OR_RETURN(SharedMemory numbers, device.Allocate(words * 4));
  for (int64_t lane = 0; lane < expansion.lanes; ++lane) {
    ATTNBIAS_RETURN_IF_ERROR(
        stream.CopyIn(numbers.get() + lane * expansion.lane_numbers * size,
                      expansion.numbers + lane * expansion.lane_stride_bytes,
                      expansion.lane_numbers * size));
  }
  launch_.numbers = ArrayOf<const uint32_t>(numbers, words);
  memory_.push_back(std::move(numbers));
  launch_.lane_numbers = expansion.lane_numbers;
  launch_.element_bytes = static_cast<int>(size);
  launch_.num_queries = static_cast<uint32_t>(expansion.queries.size());
  launch_.num_keys = static_cast<uint32_t>(expansion.keys.size());
  std::vector<int64_t> lists[4];
  ATTNBIAS_RETURN_IF_ERROR(UploadLine(expansion.query_coordinates, stream,
                                      &lists[0], &launch_.query_coordinates));
  ATTNBIAS_RETURN_IF_ERROR(UploadLine(expansion.key_coordinates, stream,
                                      &lists[1], &launch_.key_coordinates));
  ATTNBIAS_RETURN_IF_ERROR(
      UploadLine(expansion.queries, stream, &lists[2], &launch_.queries));
  ATTNBIAS_RETURN_IF_ERROR(
      UploadLine(expansion.keys, stream, &lists[3], &launch_.keys));
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
  // What was copied from may go; the other slot need not wait.
  return stream.Wait();
}

absl::Status DenseExpander::UploadLine(const Line& line, Stream& stream,
                                       std::vector<int64_t>* list,
                                       DeviceLine* device_line) {
  if (line.is_even()) {
    device_line->begin = line.At(0);
    device_line->step = line.step();
    return absl::OkStatus();
  }
  for (int64_t i = 0; i < line.size(); ++i) list->push_back(line.At(i));
  return Upload(*device_, stream, absl::MakeConstSpan(*list),
                &memory_.emplace_back(), &device_line->list);
}

absl::Status DenseExpander::TryBegin(Range elements, std::byte* out) {
  Slot& slot = slots_[next_];
  slot.made_bytes = elements.size() * launch_.element_bytes;
  const int64_t bytes = RoundUp(slot.made_bytes, sizeof(Vector16));
  if (slot.out_bytes < bytes) {
    ATTNBIAS_ASSIGN_OR_RETURN(slot.out, device_->Allocate(bytes));
    slot.out_bytes = bytes;
  }
  ExpansionLaunch launch = launch_;
  launch.first = elements.begin;
  launch.count = elements.size();
  launch.out = ArrayOf<Vector16>(
      slot.out, bytes / static_cast<int64_t>(sizeof(Vector16)));
  ATTNBIAS_RETURN_IF_ERROR(slot.stream->Launch(launch));
  ATTNBIAS_RETURN_IF_ERROR(
      slot.stream->CopyOut(out, slot.out.get(), slot.made_bytes));
  under_way_.push_back(&slot);
  next_ = (next_ + 1) % slots_.size();
  return absl::OkStatus();
}

bool DenseExpander::Finish() {
  Slot& slot = *under_way_.front();
  under_way_.pop_front();
  if (!device_.Check(slot.stream->Wait())) return false;
  device_.Made(slot.made_bytes);
  return true;
}

}  // namespace attnbias
