// SPDX-License-Identifier: Apache-2.0
// KERPLE (Chi et al. 2022) as an encoding.
#include "core/encoding/kerple.h"

#include <cmath>
#include <memory>
#include <vector>

#include "core/base/status_macros.h"
#include "core/encoding/by_distance.h"
#include "core/encoding/checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/scaled_rounding.h"
#include "core/numerics/elementary.h"
#include "core/numerics/rounding.h"

namespace attnbias {
namespace {

// Far beyond what is ever learned, near enough for double-doubles.
constexpr double kLeastParameter = 1e-30;
constexpr double kMostParameter = 1e30;
constexpr double kMostPower = 2;

// Holds a product of two doubles.
constexpr int kFactorPrecision = 128;

// -ln(1 + a d) or -d^p.
Estimate KernelOf(const KerpleHead& head, double distance, DoubleDouble log) {
  if (head.kernel == KerpleKernel::kLog) {
    // What 1 + a d loses, 2^-104 of it, is less than LogOf's 2^-103 leaves.
    return LogOf(DoubleDouble{1, 0} + TwoProduct(head.a, distance));
  }
  const DoubleDouble exponent = log * head.p;
  Estimate power = ExpOf(exponent);
  power.bound += 2 * kLogBound * (1 + std::fabs(exponent.hi)) * power.value.hi;
  return power;
}

class KerpleEvaluator final : public Evaluator {
 public:
  KerpleEvaluator(std::vector<KerpleHead> heads, DataType type)
      : heads_(std::move(heads)), type_(type) {
    for (const KerpleHead& head : heads_) {
      Real factor(kFactorPrecision);
      mpfr_set_d(factor.get(),
                 head.kernel == KerpleKernel::kLog ? -head.p : -head.a,
                 MPFR_RNDN);
      mpfr_mul_d(factor.get(), factor.get(), head.scale, MPFR_RNDN);
      roundings_.emplace_back(factor, type);
    }
  }

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override {
    FillByDistance(
        block, type_, out, lane_stride_bytes, [this](int64_t distance) {
          DoubleDouble log;
          if (distance > 0 && heads_[0].kernel == KerpleKernel::kPower) {
            log = LogOf({static_cast<double>(distance), 0}).value;
          }
          return [=, this](int64_t head, std::byte* element) {
            Write(head, distance, log, element);
          };
        });
  }

  int64_t work_per_coordinate() const override {
    // A logarithm or a power each.
    return 64 * static_cast<int64_t>(heads_.size());
  }

 private:
  // `log` is the distance's logarithm, for the kernel that wants it.
  void Write(int64_t lane, int64_t distance, DoubleDouble log,
             std::byte* out) const {
    const KerpleHead& head = heads_[lane];
    if (distance != 0) {
      const Estimate kernel =
          KernelOf(head, static_cast<double>(distance), log);
      if (roundings_[lane].TryRound(kernel.value, kernel.bound, out)) return;
    }
    ReferenceKerple(head, distance, type_, out);
  }

  const std::vector<KerpleHead> heads_;
  std::vector<ScaledRounding> roundings_;
  const DataType type_;
};

class KerpleEncoding final : public Encoding {
 public:
  KerpleEncoding(const KerpleSpec& spec, double scale)
      : spec_(spec), scale_(scale) {}

  std::string_view name() const override { return "kerple"; }
  Structure structure() const override { return Structure::kToeplitz; }
  int64_t lanes() const override { return spec_.num_heads; }
  int64_t width() const override { return 1; }
  Range domain() const override { return kRelativePositions; }

  void WriteIdentity(CanonicalWriter& writer) const override {
    writer.Integer(1, static_cast<int64_t>(*spec_.kernel));
    writer.Reals(2, spec_.p);
    writer.Reals(3, spec_.a);
    writer.Integer(4, spec_.num_heads);
    writer.Real(101, scale_, 1);
  }

  std::unique_ptr<const Evaluator> Prepare(
      DataType type, const KernelSet& /*kernels*/) const override {
    std::vector<KerpleHead> heads;
    for (int64_t head = 0; head < spec_.num_heads; ++head) {
      heads.push_back({.kernel = *spec_.kernel,
                       .p = spec_.p[spec_.p.size() == 1 ? 0 : head],
                       .a = spec_.a[spec_.a.size() == 1 ? 0 : head],
                       .scale = scale_});
    }
    return std::make_unique<KerpleEvaluator>(std::move(heads), type);
  }

 private:
  const KerpleSpec spec_;
  const double scale_;
};

absl::Status CheckParameters(absl::string_view field,
                             const std::vector<double>& values,
                             int64_t num_heads, double most) {
  const auto count = static_cast<int64_t>(values.size());
  if (count != 1 && count != num_heads) {
    return Invalid(field, ": got ", count, " numbers, want ", num_heads,
                   " (num_heads), or one for all heads");
  }
  for (int64_t i = 0; i < count; ++i) {
    if (!(values[i] >= kLeastParameter && values[i] <= most)) {
      return Invalid(field, "[", i, "]: got ", values[i],
                     ", want a number in [", kLeastParameter, ", ", most, "]");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const KerpleSpec& spec,
                                         const Output& output) {
  if (!spec.kernel.has_value()) {
    return Invalid("kerple.kernel: not set, want LOG or POWER");
  }
  ATTNBIAS_RETURN_IF_ERROR(CheckNumHeads("kerple.num_heads", spec.num_heads));
  const bool is_power = *spec.kernel == KerpleKernel::kPower;
  ATTNBIAS_RETURN_IF_ERROR(
      CheckParameters("kerple.p", spec.p, spec.num_heads,
                      is_power ? kMostPower : kMostParameter));
  ATTNBIAS_RETURN_IF_ERROR(
      CheckParameters("kerple.a", spec.a, spec.num_heads, kMostParameter));
  ATTNBIAS_RETURN_IF_ERROR(CheckBias(output, "kerple"));
  ATTNBIAS_RETURN_IF_ERROR(CheckScale(output));
  return std::make_shared<const KerpleEncoding>(spec, output.scale);
}

}  // namespace attnbias
