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

// Rows of sinusoids as FillSinusoid makes them, many blocks with the same
// rotations after one another.
struct SinusoidBlocks {
  // anchor_sin, anchor_cos and sin_bound are [blocks, pairs]; `rows` are those
  // of all blocks, each of which but the last has block_rows.
  SinusoidBlock block;
  int64_t block_rows = 0;
  // F32, F16 or BF16.
  DataType type = DataType::kF32;
};

// Accelerator::FillSinusoids, of blocks whose elements 32 bits can count.
// RESOURCE_EXHAUSTED also where more are undecided than there is room for.
absl::Status FillSinusoidsOnDevice(const SinusoidBlocks& blocks, Device* device,
                                   PinnedPool* pool, std::byte* out,
                                   std::vector<int64_t>* undecided);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_SINUSOIDS_H_
