// SPDX-License-Identifier: Apache-2.0
// A device that makes large pieces of work: the same bits as the CPU, on
// memory of its own behind a bus.
//
// Everything here may be declined, and then the caller does it on the CPU: a
// device may be missing, broken or full, or the work not worth the way.
#ifndef ATTNBIAS_CORE_KERNEL_ACCELERATOR_H_
#define ATTNBIAS_CORE_KERNEL_ACCELERATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/kernel/kernels.h"
#include "core/tensor/data_type.h"
#include "core/tensor/line.h"
#include "core/tensor/range.h"

namespace attnbias {

// A row-major tensor [lanes, queries, keys] of numbers that repeat: key k, seen
// from query q, has number key_coordinates[k] - query_coordinates[q] of its
// lane.
struct DenseExpansion {
  // Lane n begins at numbers + n * lane_stride_bytes.
  const std::byte* numbers = nullptr;
  int64_t lanes = 0;
  int64_t lane_numbers = 0;
  int64_t lane_stride_bytes = 0;
  int64_t element_bytes = 0;
  Line query_coordinates;
  Line key_coordinates;

  // What follows goes by these positions. Pairs whose key - query is not in
  // `visible` hold the fill's bits.
  Line queries;
  Line keys;
  Range visible;
  uint64_t fill_bits = 0;
  // Null, or [lanes, 3]: what the class token, at position 0, gives every key,
  // what every other query gives it, and what it gives itself.
  const std::byte* border = nullptr;
};

// Makes pieces of one expansion. Not safe for concurrent use.
class DenseExpander {
 public:
  virtual ~DenseExpander() = default;

  // Starts to write elements `elements` of the flat tensor to `out`, memory of
  // Accelerator::AllocateHost. At most two pieces are under way. False when it
  // cannot be done.
  virtual bool Begin(Range elements, std::byte* out) = 0;
  // Waits for the piece begun first; false when it has failed.
  virtual bool Finish() = 0;
};

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

// A product with some of the vectors that a device keeps: `vectors` of them,
// each `width` numbers, `stride` numbers apart, from number `first` on.
struct VectorProduct {
  int64_t rows = 0;
  int64_t vectors = 0;
  int64_t width = 0;
  int64_t stride = 0;
  int64_t first = 0;
  // Whether [rows, width] numbers are multiplied with each vector, or the
  // vectors summed with the weights [rows, vectors].
  bool transposed = false;

  constexpr int64_t input_columns() const {
    return transposed ? width : vectors;
  }
  constexpr int64_t output_columns() const {
    return transposed ? vectors : width;
  }
};

// Vectors kept on a device. Any number of threads may use it at once.
class DeviceVectors {
 public:
  virtual ~DeviceVectors() = default;
  // Writes [rows, output_columns] to `out`; all matrices are row-major without
  // holes. False when it cannot be done.
  virtual bool Multiply(const VectorProduct& product, const float* input,
                        float* out) = 0;
  virtual bool Multiply(const VectorProduct& product, const double* input,
                        double* out) = 0;
};

// Any number of threads may use it at once.
class Accelerator {
 public:
  virtual ~Accelerator() = default;

  // "cuda".
  virtual std::string_view name() const = 0;
  // Whether work that results in so many bytes is worth handing over. For some
  // work the CPU need write nothing at all.
  virtual bool Wants(int64_t bytes, bool cpu_writes_nothing) const = 0;

  // Memory that the device writes to fast; null when there is none.
  virtual std::shared_ptr<std::byte> AllocateHost(int64_t bytes) = 0;
  // Null when it cannot be done. Copies what the expansion points at.
  virtual std::unique_ptr<DenseExpander> MakeExpander(
      const DenseExpansion& expansion) = 0;
  // Writes elements and the indices of those whose rounding is undecided, as
  // FillSinusoid does, overrunning nothing; columns that hold neither a sine
  // nor a cosine become 0. False, perhaps having written, when it cannot be
  // done.
  virtual bool FillSinusoids(const SinusoidBlocks& blocks, std::byte* out,
                             std::vector<int64_t>* undecided) = 0;
  // Null when it cannot be done.
  virtual std::unique_ptr<DeviceVectors> KeepVectors(const std::byte* numbers,
                                                     int64_t bytes) = 0;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_KERNEL_ACCELERATOR_H_
