// SPDX-License-Identifier: Apache-2.0
// Sines and cosines of angles that frameworks round to F32: a = fl32(p inv).
#ifndef ATTNBIAS_CORE_ENCODING_SINUSOID_FLOAT32_ANGLES_H_
#define ATTNBIAS_CORE_ENCODING_SINUSOID_FLOAT32_ANGLES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/encoding/common/scaled_rounding.h"
#include "core/encoding/evaluator.h"
#include "core/encoding/sinusoid/sinusoid.h"

namespace attnbias {

// Rows [sines | cosines], each element scale x sine or cosine of its angle,
// rounded once.
class Float32AngleEvaluator final : public Evaluator {
 public:
  // Frequencies are in [2^-126, 2^64].
  Float32AngleEvaluator(std::vector<float> inverse_frequencies,
                        RealToAnyPrecision scale, DataType type);

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override;

  int64_t work_per_coordinate() const override {
    // A sine and a cosine each, from scratch.
    return 64 * static_cast<int64_t>(inverse_frequencies_.size());
  }

 private:
  void Write(float angle, std::byte* sine, std::byte* cosine) const;
  void Resolve(SinusoidColumns::Kind kind, float angle, std::byte* out) const;

  const std::vector<float> inverse_frequencies_;
  const RealToAnyPrecision scale_;
  const ScaledRounding rounding_;
  const DataType type_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SINUSOID_FLOAT32_ANGLES_H_
