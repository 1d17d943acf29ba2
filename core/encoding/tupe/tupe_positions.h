// SPDX-License-Identifier: Apache-2.0
// TUPE's absolute term: dot products of projected positions, to the same bits
// everywhere.
//
// In F64 and in this order: LayerNorm with sums over a row's columns one after
// the other, both projections as Linear has them, queries times the scale, and
// products of query and key added to 0 over a head's columns; each step rounded
// once, a product and its sum together.
#ifndef ATTNBIAS_CORE_ENCODING_TUPE_TUPE_POSITIONS_H_
#define ATTNBIAS_CORE_ENCODING_TUPE_TUPE_POSITIONS_H_

#include <cstdint>
#include <vector>

#include "core/encoding/spec/tupe.h"
#include "core/kernel/kernel_set.h"
#include "core/tensor/range.h"

namespace attnbias {

class TupePositions {
 public:
  // From a spec that MakeEncoding accepts, with its position_scale.
  TupePositions(const TupeSpec& spec, const KernelSet& kernels);

  // Writes the products of the table's row `query` with the rows `keys`.
  void Dot(int64_t head, int64_t query, Range keys, const KernelSet& kernels,
           double* out) const;

  int64_t memory_bytes() const {
    return 2 * static_cast<int64_t>(keys_.size() * sizeof(double));
  }

 private:
  const int64_t rows_;
  const int64_t dim_;
  const int64_t head_dim_;
  std::vector<double> queries_;  // [rows, dim], scaled
  std::vector<double> keys_;     // [dim, rows]
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_TUPE_TUPE_POSITIONS_H_
