// SPDX-License-Identifier: Apache-2.0
// Fills rows of sinusoids: fast where doubles decide a rounding, by ever more
// bits where they do not, so that every element is correctly rounded whatever
// instruction set or cut of the range it came from.
//
//   1. Anchors, one a block of rows, are double-doubles: the first by rotations
//      that SinCosOf gave, each next by rotating the last.
//   2. Kernels rotate an anchor, scaled, to the block's rows in plain doubles
//   and
//      say which roundings those leave undecided. F64 output and output of an
//      extreme scale take double-double rotations instead.
//   3. An undecided element is computed by SinCosOf, at 2^-97.
//   4. What that leaves undecided goes to the rows' reference.
#ifndef ATTNBIAS_CORE_ENCODING_SINUSOID_SINUSOIDAL_EVALUATOR_H_
#define ATTNBIAS_CORE_ENCODING_SINUSOID_SINUSOIDAL_EVALUATOR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/encoding/common/scaled_rounding.h"
#include "core/encoding/evaluator.h"
#include "core/encoding/sinusoid/rotor_rows.h"
#include "core/encoding/sinusoid/sinusoid.h"

namespace attnbias {

class SinusoidalEvaluator final : public Evaluator {
 public:
  // `kernels` outlives this.
  SinusoidalEvaluator(SinusoidRows rows, DataType type,
                      const KernelSet& kernels);

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override;

  int64_t memory_bytes() const override;

 private:
  struct Rows;       // consecutive rows and where they go
  struct Workspace;  // what one Fill writes on its way

  bool HasKernel() const;
  bool CanFillDirectly(const Rows& rows) const;
  RotorRows RotationsBy(int64_t step) const;
  void Compute(int64_t position, const Rotors& out) const;
  void SetAnchor(int64_t position, const Rotors& anchor) const;
  void SetReach(const Rows& chain, Workspace& work) const;
  void FillChain(const Rows& chain, Workspace& work) const;
  // False, perhaps having written, where there is no accelerator for it.
  bool FillOnAccelerator(const Rows& chain, Workspace& work) const;
  void FillBlock(const Rows& block, Workspace& work) const;
  void SetScaledAnchor(Workspace& work) const;
  void FillPart(const Rows& part, int64_t rotation, Workspace& work) const;
  void RotateInDoubles(const Rows& part, int64_t rotation,
                       Workspace& work) const;
  SinusoidBlock DescribeBlock(const double* anchor_sin,
                              const double* anchor_cos,
                              const ConstRotors& rotations,
                              const double* sin_bound, int64_t rows) const;
  int64_t RunKernel(const SinusoidBlock& block, std::byte* out,
                    uint32_t* undecided) const;
  void RotateInDoubleDoubles(const Rows& part, int64_t rotation,
                             Workspace& work) const;
  void RoundRow(int64_t position, Workspace& work, std::byte* row) const;
  void Resolve(int64_t position, int64_t column, std::byte* out) const;

  const SinusoidRows described_;
  const SinusoidColumns& columns_;
  const std::vector<SinusoidFrequency>& frequencies_;
  const ScaledRounding rounding_;
  const DataType type_;
  const int64_t row_bytes_;
  const KernelSet& kernels_;
  // frequencies_.size() rounded up to a multiple of kPairMultiple.
  const int64_t pairs_;
  // Rows an anchor serves.
  const int64_t block_rows_;
  // Table n has the rotations by 0, 1, ..., block_rows_ - 1 times block_rows_^n
  // positions; there are at least two.
  std::vector<RotorRows> tables_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SINUSOID_SINUSOIDAL_EVALUATOR_H_
