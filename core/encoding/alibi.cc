// SPDX-License-Identifier: Apache-2.0
// Attention with linear biases (Press et al. 2022) as an encoding.
#include "core/encoding/alibi.h"

#include <cmath>
#include <memory>
#include <variant>
#include <vector>

#include "core/base/status_macros.h"
#include "core/encoding/checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/scaled_rounding.h"
#include "core/numerics/rounding.h"

namespace attnbias {
namespace {

constexpr double kMaxBiasMax = 1024;

// slope x scale, where it is a double exactly, or else what multiplies by it.
using Factor = std::variant<double, ScaledRounding>;

Factor FactorOf(const AlibiSpec& spec, int64_t head, double scale,
                DataType type) {
  constexpr int kPrecision = 256;
  AlibiSlope slope = AlibiSlopeOf(spec, head, kPrecision);
  Real& product = slope.value;
  mpfr_mul_d(product.get(), product.get(), scale, MPFR_RNDN);
  const double nearest = mpfr_get_d(product.get(), MPFR_RNDN);
  if (slope.is_exact && mpfr_cmp_d(product.get(), nearest) == 0) {
    return nearest;
  }
  return ScaledRounding(product, type);
}

class AlibiEvaluator final : public Evaluator {
 public:
  AlibiEvaluator(const AlibiSpec& spec, double scale, DataType type)
      : spec_(spec), scale_(scale), type_(type) {
    const RealCacheScope cache_scope;
    for (int64_t head = 0; head < spec.num_heads; ++head) {
      factors_.push_back(FactorOf(spec, head, scale, type));
    }
  }

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override {
    for (int64_t head = block.lanes.begin; head < block.lanes.end; ++head) {
      std::byte* element = out + (head - block.lanes.begin) * lane_stride_bytes;
      for (int64_t at = block.span.begin; at < block.span.end; ++at) {
        Write(head, at, element);
        element += SizeOf(type_);
      }
    }
  }

 private:
  void Write(int64_t head, int64_t coordinate, std::byte* out) const {
    const Factor& factor = factors_[head];
    const double* exact = std::get_if<double>(&factor);
    const int64_t distance = AlibiDistance(spec_.variant, coordinate);
    if (distance == 0 || (exact != nullptr && *exact == 0)) {
      return RoundDouble(0, type_, out);
    }
    // Exact: distances stay below 2^53.
    const double multiple = static_cast<double>(distance);
    if (exact != nullptr) return RoundProduct(*exact, multiple, type_, out);
    const double error = ScaledRounding::kLeastError * std::fabs(multiple);
    if (std::get<ScaledRounding>(factor).TryRound({multiple, 0}, error, out)) {
      return;
    }
    ReferenceAlibi(spec_,
                   {.head = head, .coordinate = coordinate, .scale = scale_},
                   type_, out);
  }

  const AlibiSpec spec_;
  const double scale_;
  const DataType type_;
  std::vector<Factor> factors_;
};

class AlibiEncoding final : public Encoding {
 public:
  AlibiEncoding(const AlibiSpec& spec, double scale)
      : spec_(spec), scale_(scale) {}

  std::string_view name() const override { return "alibi"; }
  Structure structure() const override {
    return spec_.variant == AlibiVariant::kSymmetric ||
                   spec_.variant == AlibiVariant::kCausal
               ? Structure::kToeplitz
               : Structure::kKeyRow;
  }
  int64_t lanes() const override { return spec_.num_heads; }
  int64_t width() const override { return 1; }
  Range domain() const override { return kRelativePositions; }
  bool anchored_at_last_key() const override {
    return spec_.variant == AlibiVariant::kKeyFromEnd;
  }

  void WriteIdentity(CanonicalWriter& writer) const override {
    const AlibiSpec defaults;
    writer.Integer(1, spec_.num_heads);
    writer.Real(2, spec_.alibi_bias_max, defaults.alibi_bias_max);
    writer.Reals(3, spec_.slopes);
    writer.Integer(4, static_cast<int64_t>(spec_.variant),
                   static_cast<int64_t>(defaults.variant));
    writer.Real(101, scale_, 1);
  }

  std::unique_ptr<const Evaluator> Prepare(
      DataType type, const KernelSet& /*kernels*/) const override {
    return std::make_unique<AlibiEvaluator>(spec_, scale_, type);
  }

 private:
  const AlibiSpec spec_;
  const double scale_;
};

absl::Status CheckSlopes(const AlibiSpec& spec) {
  const auto count = static_cast<int64_t>(spec.slopes.size());
  if (count != spec.num_heads) {
    return Invalid("alibi.slopes: got ", count, " numbers, want ",
                   spec.num_heads, " (num_heads), or none");
  }
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(spec.slopes[i])) {
      return Invalid("alibi.slopes[", i, "]: got ", spec.slopes[i],
                     ", want a finite number");
    }
  }
  if (spec.alibi_bias_max != AlibiSpec().alibi_bias_max) {
    return Invalid("alibi.alibi_bias_max: got ", spec.alibi_bias_max,
                   ", want none: slopes are given");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const AlibiSpec& spec,
                                         const Output& output) {
  ATTNBIAS_RETURN_IF_ERROR(CheckNumHeads("alibi.num_heads", spec.num_heads));
  if (!spec.slopes.empty()) {
    ATTNBIAS_RETURN_IF_ERROR(CheckSlopes(spec));
  } else if (!(spec.alibi_bias_max > 0 && spec.alibi_bias_max <= kMaxBiasMax)) {
    return Invalid("alibi.alibi_bias_max: got ", spec.alibi_bias_max,
                   ", want a number in (0, ", kMaxBiasMax, "]");
  }
  ATTNBIAS_RETURN_IF_ERROR(CheckBias(output, "alibi"));
  ATTNBIAS_RETURN_IF_ERROR(CheckScale(output));
  return std::make_shared<const AlibiEncoding>(spec, output.scale);
}

}  // namespace attnbias
