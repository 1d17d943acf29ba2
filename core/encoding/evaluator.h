// SPDX-License-Identifier: Apache-2.0
// What computes an encoding's numbers.
#ifndef ATTNBIAS_CORE_ENCODING_EVALUATOR_H_
#define ATTNBIAS_CORE_ENCODING_EVALUATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/tensor/data_type.h"
#include "core/tensor/range.h"

namespace attnbias {

// What is made of real numbers: each is multiplied by the scale and rounded
// once. As I32, which has no scale, indices stand in place of numbers.
struct NumberFormat {
  DataType type = DataType::kF32;
  double scale = 1;
};

// Some lanes at some coordinates.
struct Block {
  Range lanes;
  Range span;
  // DENSE only: the query's position.
  int64_t query = 0;
};

// Computes an encoding's numbers in one format. Immutable; any number of
// threads may use it at once.
class Evaluator {
 public:
  virtual ~Evaluator() = default;

  // Writes the numbers of `block`, each rounded once to nearest even.
  //
  //   Shape    the block's n-th lane is row-major [span.size(), width] at
  //            out + n * lane_stride_bytes
  //   Range    the span lies in the encoding's domain, the lanes in its lanes,
  //            and neither is empty
  //   Result   does not depend on how a range is cut into blocks
  virtual void Fill(const Block& block, std::byte* out,
                    int64_t lane_stride_bytes) const = 0;

  // So many coordinates take no longer than one.
  virtual int64_t batch() const { return 1; }
};

using EvaluatorPtr = std::unique_ptr<const Evaluator>;

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_EVALUATOR_H_
