// SPDX-License-Identifier: Apache-2.0
// An MLP over relative coordinates: Swin-V2's continuous position bias (Liu et al. 2022) and the
// dynamic position bias of CrossFormer (Wang et al. 2021) and, for sequences, x-transformers.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/errors.h"
#include "core/encoding/common/network.h"
#include "core/encoding/encoding.h"
#include "core/numerics/double_double.h"
#include "core/numerics/real.h"
#include "core/numerics/rounding.h"
#include "core/request/rules.h"
#include "core/table/table.h"
#include "core/tensor/data_type.h"

namespace attnbias {
namespace {

constexpr int64_t kBorderLength = 3;
// Relative error of a sigmoid computed in F64. Leaves room for an exp with an error of thousands of
// units in the last place.
constexpr double kSigmoidBound = 0x1p-40;

// Returns the double nearest to log2(8 distance / (side - 1) + 1) / 3.
double NormalisedLog(int64_t distance, int64_t side) {
  if (distance == 0) return 0;
  double nearest;
  RoundByRefining(
      [&](Real& value, Real& bound) {
        value = Real(8 * distance, value.precision()) / (side - 1) + 1;
        mpfr_log2(value.get(), value.get(), MPFR_RNDN);
        value /= 3;
        // Five roundings. The logarithm magnifies the errors in its argument, which is at least 1 +
        // 8/255, by less than 2^7.
        SetRoundingBound(value, 10, bound);
      },
      DataType::kF64, reinterpret_cast<std::byte*>(&nearest));
  return nearest;
}

// Returns the coordinate for `difference` (the query's position minus the key's) as the nearest
// double.
double CoordinateOf(int64_t difference, v1::Coordinates kind, int64_t side) {
  const auto signed_difference = static_cast<double>(difference);
  const int64_t distance = std::abs(difference);
  switch (kind) {
    case v1::COORDINATES_SIGNED_LOG:
      return std::copysign(RoundedLog1p({static_cast<double>(distance), 0}), signed_difference);
    case v1::COORDINATES_LOG2_NORMALIZED:
      return std::copysign(NormalisedLog(distance, side), signed_difference);
    default:
      return signed_difference;
  }
}

// Writes 16 * scale * sigmoid(x), for a finite x and any type.
void WriteReferenceSigmoid(double x, double scale, DataType type, std::byte* out) {
  if (x == 0) return RoundProduct(8, scale, type, out);
  // The difference from 16 * scale or from 0 is below the resolution of every format.
  if (x < -2000) return RoundDouble(std::copysign(0, scale), type, out);
  const double limit = 16 * scale;
  if (x > 1000 && std::isfinite(limit)) {
    return RoundSum({limit, limit * -0x1p-60}, type, out);
  }
  x = std::min(x, 1000.0);
  // Never a tie, since the exponential of a nonzero rational is irrational.
  RoundByRefining(
      [&](Real& value, Real& bound) {
        value = 16 / (Exp(Real(-x, value.precision())) + 1) * scale;
        SetRoundingBound(value, 4, bound);
      },
      type, out);
}

std::vector<NetworkLayer> LayersIn(const v1::MlpBias& spec, const Tables& tables) {
  std::vector<NetworkLayer> layers;
  for (const v1::MlpLayer& layer : spec.layers()) {
    layers.push_back({.weight = *tables.Get(layer.weight()),
                      .bias = tables.Get(layer.bias()),
                      .activation = spec.activation(),
                      .norm_weight = tables.Get(layer.norm_weight()),
                      .norm_bias = tables.Get(layer.norm_bias())});
  }
  layers.back().activation = v1::ACTIVATION_UNSPECIFIED;
  return layers;
}

// Returns the window side by which LOG2_NORMALIZED normalizes.
int64_t PretrainedSide(const v1::MlpBias& spec, int axis) {
  return spec.pretrained_window().empty() ? spec.window(axis) : spec.pretrained_window(axis);
}

EvaluatorPtr PrepareMlpBias(const v1::MlpBias& spec, absl::Span<const NetworkLayer> layers,
                            const NumberFormat& format, const KernelSet& kernels) {
  const v1::Coordinates kind = spec.coordinates();
  // The coordinates of all displacements along each axis of a window.
  std::vector<std::vector<double>> of_axes(spec.window_size());
  for (int axis = 0; axis < spec.window_size(); ++axis) {
    const int64_t farthest = spec.window(axis) - 1;
    // Grids use key - query, but coordinates use query - key.
    for (int64_t d = farthest; d >= -farthest; --d) {
      of_axes[axis].push_back(CoordinateOf(d, kind, PretrainedSide(spec, axis)));
    }
  }
  auto set_inputs = [kind, of_axes = std::move(of_axes)](int64_t /*query*/, Range coordinates,
                                                         double* in) {
    for (int64_t n = 0; n < coordinates.size(); ++n) {
      int64_t at = coordinates.begin + n;
      if (of_axes.empty()) in[n] = CoordinateOf(-at, kind, 0);
      for (size_t axis = of_axes.size(); axis-- > 0;) {
        const auto side = static_cast<int64_t>(of_axes[axis].size());
        in[axis * kBatch + n] = of_axes[axis][at % side];
        at /= side;
      }
    }
  };
  const auto write = [format, has_sigmoid = spec.output() == v1::MLP_OUTPUT_SIGMOID_16,
                      rounding = ScaledRounding(format.scale, format.type)](double x,
                                                                            std::byte* out) {
    if (!has_sigmoid) return RoundProduct(x, format.scale, format.type, out);
    if (format.type != DataType::kF64 && std::fabs(x) < 100) {
      const double estimate = 16 / (1 + std::exp(-x));
      if (rounding.TryRound({estimate, 0}, kSigmoidBound * estimate, out)) return;
    }
    WriteReferenceSigmoid(x, format.scale, format.type, out);
  };
  return PrepareNetwork(layers, format.type, kernels, std::move(set_inputs), write);
}

// LOG2_NORMALIZED divides by a side's length minus 1, which may be 0 only if every difference is 0.
absl::Status CheckWindows(const v1::MlpBias& spec) {
  if (spec.coordinates() != v1::COORDINATES_LOG2_NORMALIZED) {
    if (spec.pretrained_window().empty()) return absl::OkStatus();
    return Invalid("mlp_bias.pretrained_window: got ", spec.pretrained_window_size(),
                   " numbers, want none with coordinates ", ShortName(spec.coordinates()));
  }
  if (spec.window().empty()) {
    return Invalid(
        "mlp_bias.window: not set, want one to three sides with coordinates "
        "LOG2_NORMALIZED");
  }
  for (int axis = 0; axis < spec.window_size(); ++axis) {
    if (PretrainedSide(spec, axis) > 1 || spec.window(axis) == 1) continue;
    return Invalid("mlp_bias.pretrained_window[", axis, "]: got 1, want at least 2 for a side of ",
                   spec.window(axis));
  }
  return absl::OkStatus();
}

absl::Status CheckLayers(const v1::MlpBias& spec, absl::Span<const NetworkLayer> layers) {
  int64_t numbers = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    numbers += layers[i].weight.size();
    if (numbers > kMaxNetworkNumbers) {
      return Invalid("mlp_bias.layers[", i, "].weight: got ", numbers,
                     " numbers in total, including the previous layers, want at most ",
                     kMaxNetworkNumbers);
    }
  }
  if (layers.back().norm_weight.has_value()) {
    return Invalid("mlp_bias.layers[", layers.size() - 1,
                   "].norm_weight: got a table, want none: nothing follows the last layer");
  }
  int64_t inputs = std::max(spec.window_size(), 1);
  auto reach = static_cast<double>(kRelativePositions.end);
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto field = absl::StrCat("mlp_bias.layers[", i, "].weight");
    const Table& weight = layers[i].weight;
    const int64_t outputs = i + 1 == layers.size() ? spec.num_heads() : weight.rows();
    if (weight.rows() != outputs || weight.columns() != inputs) {
      return Invalid(field, ": got ", weight.rows(), " outputs with ", weight.columns(),
                     " inputs each, want ", outputs, " with ", inputs);
    }
    ATTNBIAS_RETURN_IF_ERROR(CheckLayer(field, layers[i], reach));
    inputs = outputs;
  }
  return absl::OkStatus();
}

// Drops a pretrained window that equals the window, since it does not change the values.
std::shared_ptr<const v1::MlpBias> Canonical(const v1::MlpBias& spec) {
  if (spec.pretrained_window().empty() ||
      !std::ranges::equal(spec.window(), spec.pretrained_window())) {
    return nullptr;
  }
  auto canonical = std::make_shared<v1::MlpBias>(spec);
  canonical->clear_pretrained_window();
  return canonical;
}

void WriteZeros(const NumberFormat& format, Range lanes, std::byte* out) {
  for (int64_t n = 0; n < lanes.size() * kBorderLength; ++n) {
    RoundProduct(0, format.scale, format.type, out);
    out += SizeOf(format.type);
  }
}

absl::StatusOr<Encoding> DescribeMlpBias(const v1::MlpBias& spec, const Tables& tables) {
  const std::vector<NetworkLayer> layers = LayersIn(spec, tables);
  ATTNBIAS_RETURN_IF_ERROR(CheckWindows(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckLayers(spec, layers));
  Encoding encoding{.structure = Structure::kToeplitz,
                    .lanes = spec.num_heads(),
                    .has_heads = true,
                    .domain = kRelativePositions,
                    .canonical = Canonical(spec),
                    .evaluator_bytes = NetworkBytes(layers),
                    .prepare = [=](const NumberFormat& format, const KernelSet& kernels) {
                      return PrepareMlpBias(spec, layers, format, kernels);
                    }};
  if (!spec.window().empty()) {
    encoding.structure = Structure::kBlockToeplitz;
    encoding.grid = {{spec.window().begin(), spec.window().end()}};
    encoding.domain = encoding.grid.coordinates();
  }
  if (spec.class_token()) encoding.write_border = &WriteZeros;
  return encoding;
}

const EncodingRegistration kMlpBias(v1::TensorSpec::kMlpBiasFieldNumber, &DescribeMlpBias);

}  // namespace
}  // namespace attnbias
