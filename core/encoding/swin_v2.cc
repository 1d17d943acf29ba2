// SPDX-License-Identifier: Apache-2.0
// Swin-V2's continuous position bias (Liu et al. 2022): an MLP of one hidden
// layer over logarithmic coordinates, and 16 sigmoid of what it gives.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status_macros.h"
#include "core/encoding/checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/linear.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/scaled_rounding.h"
#include "core/numerics/real.h"
#include "core/numerics/rounding.h"

namespace attnbias {
namespace {

constexpr int64_t kMaxHidden = 65536;

// Bounds the relative error of a sigmoid in F64, whoever's exp it is made of,
// with room for one that errs by thousands of units in the last place.
constexpr double kSigmoidBound = 0x1p-40;

// log2(8 distance / (pretrained - 1) + 1) / 3, the nearest double.
double LogCoordinate(int64_t distance, int64_t pretrained) {
  if (distance == 0) return 0;
  double nearest;
  RoundByRefining(
      [&](Real& value, Real& bound) {
        mpfr_set_si(value.get(), 8 * distance, MPFR_RNDN);
        mpfr_div_si(value.get(), value.get(), pretrained - 1, MPFR_RNDN);
        mpfr_add_ui(value.get(), value.get(), 1, MPFR_RNDN);
        mpfr_log2(value.get(), value.get(), MPFR_RNDN);
        mpfr_div_ui(value.get(), value.get(), 3, MPFR_RNDN);
        // Five roundings, of which the logarithm magnifies those of its
        // argument, 1 + 8/255 or more, by less than 2^7.
        SetRoundingBound(value, 10, bound);
      },
      DataType::kF64, reinterpret_cast<std::byte*>(&nearest));
  return nearest;
}

// Writes 16 scale sigmoid(x), for a finite x and any type.
void WriteReferenceSigmoid(double x, double scale, DataType type,
                           std::byte* out) {
  if (x == 0) return RoundProduct(8, scale, type, out);
  // What is left of 16 scale or of 0 is less than any format resolves.
  if (x < -2000) return RoundDouble(std::copysign(0, scale), type, out);
  const double limit = 16 * scale;
  if (x > 1000 && std::isfinite(limit)) {
    return RoundSum({limit, limit * -0x1p-60}, type, out);
  }
  x = std::min(x, 1000.0);
  // No tie: the exponential of a rational other than 0 is irrational.
  RoundByRefining(
      [&](Real& value, Real& bound) {
        mpfr_set_d(value.get(), -x, MPFR_RNDN);
        mpfr_exp(value.get(), value.get(), MPFR_RNDN);
        mpfr_add_ui(value.get(), value.get(), 1, MPFR_RNDN);
        mpfr_ui_div(value.get(), 16, value.get(), MPFR_RNDN);
        mpfr_mul_d(value.get(), value.get(), scale, MPFR_RNDN);
        SetRoundingBound(value, 4, bound);
      },
      type, out);
}

// The coordinates of all displacements along one side, from -(length - 1) on.
std::vector<double> Coordinates(int64_t length, int64_t pretrained) {
  std::vector<double> coordinates(2 * length - 1);
  for (int64_t d = 0; d < length; ++d) {
    const double coordinate = LogCoordinate(d, pretrained);
    coordinates[length - 1 - d] = -coordinate;
    coordinates[length - 1 + d] = coordinate;
  }
  return coordinates;
}

class SwinV2Evaluator final : public Evaluator {
 public:
  SwinV2Evaluator(const SwinV2Spec& spec, double scale, DataType type,
                  const KernelSet& kernels)
      : hidden_(*spec.hidden_weight, spec.hidden_bias),
        output_(*spec.output_weight, std::nullopt),
        scale_(scale),
        type_(type),
        rounding_(scale, type),
        kernels_(kernels) {
    const RealCacheScope cache_scope;
    rows_ = Coordinates(spec.window_height, *spec.pretrained_window_height);
    columns_ = Coordinates(spec.window_width, *spec.pretrained_window_width);
  }

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override {
    const RealCacheScope cache_scope;
    std::vector<double> hidden(hidden_.outputs() * kBatch);
    std::vector<double> result(block.lanes.size() * kBatch);
    const auto width = static_cast<int64_t>(columns_.size());
    for (int64_t at = block.span.begin; at < block.span.end; at += kBatch) {
      const int64_t count = std::min(kBatch, block.span.end - at);
      double in[2 * kBatch] = {};
      for (int64_t n = 0; n < count; ++n) {
        // Swin counts query - key, and grids key - query.
        in[n] = -rows_[(at + n) / width];
        in[kBatch + n] = -columns_[(at + n) % width];
      }
      hidden_.Apply(in, {0, hidden_.outputs()}, kernels_, hidden.data());
      for (double& each : hidden) each = std::max(each, 0.0);
      output_.Apply(hidden.data(), block.lanes, kernels_, result.data());
      for (int64_t lane = 0; lane < block.lanes.size(); ++lane) {
        std::byte* to = out + lane * lane_stride_bytes +
                        (at - block.span.begin) * SizeOf(type_);
        for (int64_t n = 0; n < count; ++n) {
          WriteSigmoid(result[lane * kBatch + n], to);
          to += SizeOf(type_);
        }
      }
    }
  }

  int64_t work_per_coordinate() const override {
    return hidden_.products() + output_.products();
  }

 private:
  void WriteSigmoid(double x, std::byte* out) const {
    if (type_ != DataType::kF64 && std::fabs(x) < 100) {
      const double estimate = 16 / (1 + std::exp(-x));
      if (rounding_.TryRound({estimate, 0}, kSigmoidBound * estimate, out)) {
        return;
      }
    }
    WriteReferenceSigmoid(x, scale_, type_, out);
  }

  const Linear hidden_;
  const Linear output_;
  const double scale_;
  const DataType type_;
  const ScaledRounding rounding_;
  const KernelSet& kernels_;
  std::vector<double> rows_;
  std::vector<double> columns_;
};

class SwinV2Encoding final : public Encoding {
 public:
  // `spec` has its pretrained window.
  SwinV2Encoding(const SwinV2Spec& spec, double scale)
      : spec_(spec), scale_(scale) {}

  std::string_view name() const override { return "swin_v2"; }
  Structure structure() const override { return Structure::kBlockToeplitz2D; }
  int64_t lanes() const override { return spec_.num_heads; }
  int64_t width() const override { return 1; }
  Range domain() const override {
    return {0, grid().block_height() * grid().block_width()};
  }
  Grid grid() const override {
    return {spec_.window_height, spec_.window_width};
  }

  void WriteIdentity(CanonicalWriter& writer) const override {
    writer.Integer(1, spec_.window_height);
    writer.Integer(2, spec_.window_width);
    writer.Integer(4, *spec_.pretrained_window_height, spec_.window_height);
    writer.Integer(5, *spec_.pretrained_window_width, spec_.window_width);
    writer.Bytes(6, spec_.hidden_weight->sha256());
    writer.Bytes(7, spec_.hidden_bias->sha256());
    writer.Bytes(8, spec_.output_weight->sha256());
    writer.Real(101, scale_, 1);
  }

  std::unique_ptr<const Evaluator> Prepare(
      DataType type, const KernelSet& kernels) const override {
    return std::make_unique<SwinV2Evaluator>(spec_, scale_, type, kernels);
  }

 private:
  const SwinV2Spec spec_;
  const double scale_;
};

// Coordinates are fractions of a side's length - 1, which must not be 0 where
// there are any but 0.
absl::Status CheckPretrained(absl::string_view field, int64_t pretrained,
                             int64_t length) {
  const int64_t least = length == 1 ? 1 : 2;
  if (pretrained >= least && pretrained <= kMaxWindowSide) {
    return absl::OkStatus();
  }
  return Invalid(field, ": got ", pretrained, ", want an integer in [", least,
                 ", ", kMaxWindowSide, "] for a window of ", length);
}

absl::Status CheckLayer(absl::string_view field,
                        const std::optional<Table>& table,
                        std::initializer_list<Axis> axes) {
  if (!table.has_value()) return Invalid(field, ": not set, want a table");
  ATTNBIAS_RETURN_IF_ERROR(CheckShape(field, *table, axes));
  if (table->size() > kMaxNetworkNumbers) {
    return Invalid(field, ": got ", table->size(), " numbers, want at most ",
                   kMaxNetworkNumbers);
  }
  return CheckWithinF32(field, *table);
}

absl::Status CheckLayers(const SwinV2Spec& spec) {
  const int64_t hidden =
      spec.hidden_weight.has_value() ? spec.hidden_weight->rows() : 0;
  ATTNBIAS_RETURN_IF_ERROR(
      CheckLayer("swin_v2.hidden_weight", spec.hidden_weight,
                 {{hidden, "hidden"}, {2, "coordinates"}}));
  if (hidden > kMaxHidden) {
    return Invalid("swin_v2.hidden_weight: got ", hidden,
                   " rows, want at most ", kMaxHidden);
  }
  ATTNBIAS_RETURN_IF_ERROR(CheckLayer("swin_v2.hidden_bias", spec.hidden_bias,
                                      {{hidden, "hidden"}}));
  return CheckLayer("swin_v2.output_weight", spec.output_weight,
                    {{spec.num_heads, "heads"}, {hidden, "hidden"}});
}

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const SwinV2Spec& spec,
                                         const Output& output) {
  ATTNBIAS_RETURN_IF_ERROR(
      CheckWindowSide("swin_v2.window_height", spec.window_height));
  ATTNBIAS_RETURN_IF_ERROR(
      CheckWindowSide("swin_v2.window_width", spec.window_width));
  ATTNBIAS_RETURN_IF_ERROR(CheckNumHeads("swin_v2.num_heads", spec.num_heads));
  SwinV2Spec resolved = spec;
  resolved.pretrained_window_height =
      spec.pretrained_window_height.value_or(spec.window_height);
  resolved.pretrained_window_width =
      spec.pretrained_window_width.value_or(spec.window_width);
  ATTNBIAS_RETURN_IF_ERROR(CheckPretrained("swin_v2.pretrained_window_height",
                                           *resolved.pretrained_window_height,
                                           spec.window_height));
  ATTNBIAS_RETURN_IF_ERROR(CheckPretrained("swin_v2.pretrained_window_width",
                                           *resolved.pretrained_window_width,
                                           spec.window_width));
  ATTNBIAS_RETURN_IF_ERROR(CheckLayers(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckBias(output, "swin_v2"));
  ATTNBIAS_RETURN_IF_ERROR(CheckScale(output));
  return std::make_shared<const SwinV2Encoding>(resolved, output.scale);
}

}  // namespace attnbias
