// SPDX-License-Identifier: Apache-2.0
// Swin-V2's continuous position bias (Liu et al. 2022): an MLP of one hidden
// layer over logarithmic coordinates, and 16 sigmoid of what it gives.

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "core/encoding/common/limits.h"
#include "core/encoding/common/linear.h"
#include "core/encoding/common/network.h"
#include "core/encoding/common/scaled_rounding.h"
#include "core/encoding/common/table_checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/numerics/real.h"
#include "core/numerics/rounding.h"

namespace attnbias {
namespace {

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

struct SwinV2Tables {
  SwinV2Tables(const v1::SwinV2& spec, const Tables& tables)
      : hidden_weight(*tables.Get(spec.hidden_weight())),
        hidden_bias(*tables.Get(spec.hidden_bias())),
        output_weight(*tables.Get(spec.output_weight())) {}

  Table hidden_weight;
  Table hidden_bias;
  Table output_weight;
};

int64_t PretrainedHeight(const v1::SwinV2& spec) {
  return spec.has_pretrained_window_height() ? spec.pretrained_window_height()
                                             : spec.window_height();
}

int64_t PretrainedWidth(const v1::SwinV2& spec) {
  return spec.has_pretrained_window_width() ? spec.pretrained_window_width()
                                            : spec.window_width();
}

class SwinV2Evaluator final : public NetworkEvaluator {
 public:
  SwinV2Evaluator(const v1::SwinV2& spec, const SwinV2Tables& tables,
                  const NumberFormat& format, const KernelSet& kernels)
      : NetworkEvaluator(
            OneHiddenLayer(tables.hidden_weight, tables.hidden_bias,
                           tables.output_weight, std::nullopt),
            format, kernels),
        rounding_(format.scale, format.type) {
    const RealCacheScope cache_scope;
    rows_ = Coordinates(spec.window_height(), PretrainedHeight(spec));
    columns_ = Coordinates(spec.window_width(), PretrainedWidth(spec));
  }

 private:
  void SetInputs(int64_t /*query*/, Range coordinates,
                 double* in) const override {
    const auto width = static_cast<int64_t>(columns_.size());
    for (int64_t n = 0; n < coordinates.size(); ++n) {
      const int64_t at = coordinates.begin + n;
      // Swin counts query - key, and grids key - query.
      in[n] = -rows_[at / width];
      in[kBatch + n] = -columns_[at % width];
    }
  }

  void Write(double x, std::byte* out) const override {
    if (format_.type != DataType::kF64 && std::fabs(x) < 100) {
      const double estimate = 16 / (1 + std::exp(-x));
      if (rounding_.TryRound({estimate, 0}, kSigmoidBound * estimate, out)) {
        return;
      }
    }
    const RealCacheScope cache_scope;
    WriteReferenceSigmoid(x, format_.scale, format_.type, out);
  }

  const ScaledRounding rounding_;
  std::vector<double> rows_;
  std::vector<double> columns_;
};

absl::Status CheckLayer(absl::string_view field, const Table& table,
                        std::initializer_list<TableAxis> axes) {
  ATTNBIAS_RETURN_IF_ERROR(CheckShape(field, table, axes));
  ATTNBIAS_RETURN_IF_ERROR(CheckNetworkSize(field, table));
  return CheckWithinF32(field, table);
}

absl::Status CheckLayers(const SwinV2Tables& tables, int64_t num_heads) {
  const TableAxis hidden = {tables.hidden_weight.rows(), "hidden"};
  ATTNBIAS_RETURN_IF_ERROR(CheckLayer("swin_v2.hidden_weight",
                                      tables.hidden_weight,
                                      {hidden, {2, "coordinates"}}));
  if (hidden.length > kMaxHidden) {
    return Invalid("swin_v2.hidden_weight: got ", hidden.length,
                   " rows, want at most ", kMaxHidden);
  }
  ATTNBIAS_RETURN_IF_ERROR(
      CheckLayer("swin_v2.hidden_bias", tables.hidden_bias, {hidden}));
  return CheckLayer("swin_v2.output_weight", tables.output_weight,
                    {{num_heads, "heads (num_heads)"}, hidden});
}

// Coordinates are fractions of a side's length - 1, which must not be 0 if
// there are any but 0.
absl::Status CheckPretrained(absl::string_view field, int64_t pretrained,
                             int64_t side) {
  if (pretrained > 1 || side == 1) return absl::OkStatus();
  return Invalid("swin_v2.", field, ": got ", pretrained,
                 ", want at least 2 for a window of ", side);
}

// A pretrained window that is given as the window's own is as good as none.
std::shared_ptr<const v1::SwinV2> Canonical(const v1::SwinV2& spec) {
  auto canonical = std::make_shared<v1::SwinV2>(spec);
  if (PretrainedHeight(spec) == spec.window_height()) {
    canonical->clear_pretrained_window_height();
  }
  if (PretrainedWidth(spec) == spec.window_width()) {
    canonical->clear_pretrained_window_width();
  }
  return canonical;
}

absl::StatusOr<Encoding> DescribeSwinV2(const v1::SwinV2& spec,
                                        const Tables& all_tables) {
  const SwinV2Tables tables(spec, all_tables);
  ATTNBIAS_RETURN_IF_ERROR(CheckPretrained("pretrained_window_height",
                                           PretrainedHeight(spec),
                                           spec.window_height()));
  ATTNBIAS_RETURN_IF_ERROR(CheckPretrained(
      "pretrained_window_width", PretrainedWidth(spec), spec.window_width()));
  ATTNBIAS_RETURN_IF_ERROR(CheckLayers(tables, spec.num_heads()));
  const Grid grid = {spec.window_height(), spec.window_width()};
  return Encoding{
      .structure = Structure::kBlockToeplitz2D,
      .lanes = spec.num_heads(),
      .has_heads = true,
      .domain = grid.coordinates(),
      .grid = grid,
      .canonical = Canonical(spec),
      .evaluator_bytes =
          NetworkBytes({&tables.hidden_weight, &tables.output_weight}),
      .prepare = [=](const NumberFormat& format, const KernelSet& kernels) {
        return std::make_unique<SwinV2Evaluator>(spec, tables, format, kernels);
      }};
}

const EncodingRegistration kSwinV2(v1::TensorSpec::kSwinV2FieldNumber,
                                   &DescribeSwinV2);

}  // namespace
}  // namespace attnbias
