// SPDX-License-Identifier: Apache-2.0
// Sinusoidal absolute positions (Vaswani et al. 2017) as an encoding: what is
// allowed, and what names it.
#include "core/encoding/sinusoidal.h"

#include <memory>

#include "core/base/status_macros.h"
#include "core/encoding/checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/sinusoidal_evaluator.h"

namespace attnbias {
namespace {

constexpr int64_t kMaxDim = 65536;
constexpr double kMaxBase = 1e18;
constexpr double kLeastMinTimescale = 1e-6;
constexpr double kMostMinTimescale = 1e6;
constexpr double kMostMaxTimescale = 1e18;

class SinusoidalEncoding final : public Encoding {
 public:
  SinusoidalEncoding(const SinusoidalSpec& spec, double scale)
      : spec_(spec), scale_(scale) {}

  std::string_view name() const override { return "sinusoidal"; }
  Structure structure() const override { return Structure::kTable; }
  int64_t lanes() const override { return 1; }
  int64_t width() const override { return spec_.dim; }
  Range domain() const override { return kAllPositions; }

  void WriteIdentity(CanonicalWriter& writer) const override {
    const SinusoidalSpec defaults;
    writer.Integer(1, spec_.dim);
    writer.Real(2, spec_.base, defaults.base);
    writer.Integer(3, static_cast<int64_t>(spec_.layout),
                   static_cast<int64_t>(defaults.layout));
    writer.Real(4, spec_.min_timescale, defaults.min_timescale);
    writer.Real(5, spec_.max_timescale, defaults.max_timescale);
    writer.Real(101, scale_, 1);
  }

  std::unique_ptr<const Evaluator> Prepare(
      DataType type, const KernelSet& kernels) const override {
    return std::make_unique<SinusoidalEvaluator>(RowsOf(spec_, scale_), type,
                                                 kernels);
  }

 private:
  const SinusoidalSpec spec_;
  const double scale_;
};

// False for NaN.
bool IsIn(double value, double least, double most) {
  return value >= least && value <= most;
}

absl::Status CheckTimescales(absl::string_view name,
                             const SinusoidalSpec& spec) {
  if (!IsIn(spec.min_timescale, kLeastMinTimescale, kMostMinTimescale)) {
    return Invalid(name, ".min_timescale: got ", spec.min_timescale,
                   ", want a number in [", kLeastMinTimescale, ", ",
                   kMostMinTimescale, "]");
  }
  if (!IsIn(spec.max_timescale, spec.min_timescale, kMostMaxTimescale)) {
    return Invalid(name, ".max_timescale: got ", spec.max_timescale,
                   ", want a number in [", spec.min_timescale,
                   " (min_timescale), ", kMostMaxTimescale, "]");
  }
  return absl::OkStatus();
}

struct Unused {
  absl::string_view field;
  double value;
  double default_value;
  absl::string_view reason;
};

absl::Status CheckUnused(absl::string_view name, const Unused& unused) {
  if (unused.value == unused.default_value) return absl::OkStatus();
  return Invalid(name, ".", unused.field, ": got ", unused.value,
                 ", want none: ", unused.reason);
}

}  // namespace

absl::Status CheckProgression(absl::string_view name,
                              const SinusoidalSpec& spec) {
  const SinusoidalSpec defaults;
  if (spec.layout == SinusoidalLayout::kTensor2Tensor) {
    ATTNBIAS_RETURN_IF_ERROR(CheckUnused(
        name,
        {"base", spec.base, defaults.base, "TENSOR2TENSOR has timescales"}));
    return CheckTimescales(name, spec);
  }
  constexpr absl::string_view kReason = "only TENSOR2TENSOR has timescales";
  ATTNBIAS_RETURN_IF_ERROR(CheckUnused(
      name,
      {"min_timescale", spec.min_timescale, defaults.min_timescale, kReason}));
  ATTNBIAS_RETURN_IF_ERROR(CheckUnused(
      name,
      {"max_timescale", spec.max_timescale, defaults.max_timescale, kReason}));
  if (!IsIn(spec.base, 1, kMaxBase)) {
    return Invalid(name, ".base: got ", spec.base, ", want a number in [1, ",
                   kMaxBase, "]");
  }
  return absl::OkStatus();
}

absl::StatusOr<EncodingPtr> MakeEncoding(const SinusoidalSpec& spec,
                                         const Output& output) {
  if (spec.dim < 1 || spec.dim > kMaxDim) {
    return Invalid("sinusoidal.dim: got ", spec.dim,
                   ", want an integer in [1, ", kMaxDim, "]");
  }
  ATTNBIAS_RETURN_IF_ERROR(CheckProgression("sinusoidal", spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckBias(output, "sinusoidal"));
  ATTNBIAS_RETURN_IF_ERROR(CheckScale(output));
  return std::make_shared<const SinusoidalEncoding>(spec, output.scale);
}

}  // namespace attnbias
