// SPDX-License-Identifier: Apache-2.0
// Attention with linear biases (Press et al. 2022) as an encoding.

#include <cmath>
#include <variant>
#include <vector>

#include "core/base/errors.h"
#include "core/base/executor.h"
#include "core/encoding/bias/alibi_reference.h"
#include "core/encoding/common/limits.h"
#include "core/encoding/common/scaled_rounding.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/numerics/rounding.h"

namespace attnbias {
namespace {

constexpr int kSlopePrecision = 256;

// slope x scale, where it is a double exactly, or else what multiplies by it.
using Factor = std::variant<double, ScaledRounding>;

Factor FactorOf(const v1::Alibi& spec, int64_t head,
                const NumberFormat& format) {
  AlibiSlope slope = AlibiSlopeOf(spec, head, kSlopePrecision);
  Real& product = slope.value;
  mpfr_mul_d(product.get(), product.get(), format.scale, MPFR_RNDN);
  const double nearest = mpfr_get_d(product.get(), MPFR_RNDN);
  if (slope.is_exact && mpfr_cmp_d(product.get(), nearest) == 0) {
    return nearest;
  }
  return ScaledRounding(product, format.type);
}

class AlibiEvaluator final : public Evaluator {
 public:
  AlibiEvaluator(const v1::Alibi& spec, const NumberFormat& format)
      : spec_(spec), format_(format) {
    const RealCacheScope cache_scope;
    factors_.reserve(spec.num_heads());
    for (int64_t head = 0; head < spec.num_heads(); ++head) {
      if (!MakingScope::Continues()) return;
      factors_.push_back(FactorOf(spec, head, format));
    }
  }

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override {
    for (int64_t head = block.lanes.begin; head < block.lanes.end; ++head) {
      std::byte* element = out + (head - block.lanes.begin) * lane_stride_bytes;
      for (int64_t at = block.span.begin; at < block.span.end; ++at) {
        Write(head, at, element);
        element += SizeOf(format_.type);
      }
    }
  }

 private:
  void Write(int64_t head, int64_t coordinate, std::byte* out) const {
    const Factor& factor = factors_[head];
    const double* exact = std::get_if<double>(&factor);
    const int64_t distance = AlibiDistance(spec_.variant(), coordinate);
    if (distance == 0 || (exact != nullptr && *exact == 0)) {
      return RoundDouble(0, format_.type, out);
    }
    // Exact: distances stay below 2^53.
    const double multiple = static_cast<double>(distance);
    if (exact != nullptr)
      return RoundProduct(*exact, multiple, format_.type, out);
    const double error = ScaledRounding::kLeastError * std::fabs(multiple);
    if (std::get<ScaledRounding>(factor).TryRound({multiple, 0}, error, out)) {
      return;
    }
    ReferenceAlibi(spec_, head, coordinate, format_, out);
  }

  const v1::Alibi spec_;
  const NumberFormat format_;
  std::vector<Factor> factors_;
};

int64_t EvaluatorBytes(const v1::Alibi& spec) {
  const int64_t slopes = spec.slopes_size();
  return spec.num_heads() *
             (int64_t{sizeof(Factor)} + Real::BytesOf(kSlopePrecision)) +
         slopes * int64_t{sizeof(double)};
}

absl::StatusOr<Encoding> DescribeAlibi(const v1::Alibi& spec,
                                       const Tables& /*tables*/) {
  const int64_t count = spec.slopes_size();
  if (count != 0 && count != spec.num_heads()) {
    return Invalid("alibi.slopes: got ", count, " numbers, want ",
                   spec.num_heads(), " (num_heads), or none");
  }
  const bool by_key = spec.variant() == v1::ALIBI_VARIANT_KEY_FROM_START ||
                      spec.variant() == v1::ALIBI_VARIANT_KEY_FROM_END;
  return Encoding{
      .structure = by_key ? Structure::kKeyRow : Structure::kToeplitz,
      .lanes = spec.num_heads(),
      .has_heads = true,
      .domain = kRelativePositions,
      .anchored_at_last_key = spec.variant() == v1::ALIBI_VARIANT_KEY_FROM_END,
      .evaluator_bytes = EvaluatorBytes(spec),
      .prepare = PrepareFrom<AlibiEvaluator>(spec)};
}

const EncodingRegistration kAlibi(v1::TensorSpec::kAlibiFieldNumber,
                                  &DescribeAlibi);

}  // namespace
}  // namespace attnbias
