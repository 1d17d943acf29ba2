// SPDX-License-Identifier: Apache-2.0
// Sinusoids on a device, in pieces of whole blocks.
#ifndef ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_SINUSOIDS_H_
#define ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_SINUSOIDS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/kernel/cuda/device.h"
#include "core/kernel/cuda/pinned_pool.h"
#include "core/kernel/kernels.h"
#include "core/tensor/data_type.h"

namespace attnbias {

// Many blocks of FillSinusoid's, one after another, with the same rotations.
struct SinusoidBlocks {
  // Here anchor_sin, anchor_cos and sin_bound are [blocks, pairs], and `rows`
  // counts the rows of all blocks. All but the last have block_rows.
  SinusoidBlock block;
  int64_t block_rows = 0;
  // F32, F16 or BF16.
  DataType type = DataType::kF32;
};

// See Accelerator::FillSinusoids. The elements of a block are counted in 32
// bits.
//
// RESOURCE_EXHAUSTED  the device is full, or more elements are undecided than
//                     there is room for
absl::Status FillSinusoidsOnDevice(const SinusoidBlocks& blocks, Device* device,
                                   PinnedPool* pool, std::byte* out,
                                   std::vector<int64_t>* undecided);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_SINUSOIDS_H_
