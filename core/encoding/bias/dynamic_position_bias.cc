// SPDX-License-Identifier: Apache-2.0
// Dynamic position bias (Wang et al. 2021, CrossFormer, in one dimension): an
// MLP of the distance from key to query.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "core/encoding/common/limits.h"
#include "core/encoding/common/linear.h"
#include "core/encoding/common/network.h"
#include "core/encoding/common/table_checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/numerics/elementary.h"

namespace attnbias {
namespace {

struct Layer {
  std::optional<Table> weight;
  std::optional<Table> bias;
  std::optional<Table> norm_weight;
  std::optional<Table> norm_bias;
};
using Layers = std::vector<Layer>;

Layers LayersIn(const v1::DynamicPositionBias& spec, const Tables& tables) {
  Layers layers;
  for (const v1::PositionMlpLayer& layer : spec.layers()) {
    layers.push_back({tables.Get(layer.weight()), tables.Get(layer.bias()),
                      tables.Get(layer.norm_weight()),
                      tables.Get(layer.norm_bias())});
  }
  return layers;
}

std::vector<NetworkLayer> NetworkOf(const Layers& given) {
  std::vector<NetworkLayer> layers;
  layers.reserve(given.size());
  for (const Layer& layer : given) {
    layers.push_back({Linear(*layer.weight, layer.bias), Activation::kSilu});
    if (!layer.norm_weight.has_value()) continue;
    layers.back().norm_weight = NumbersOf(*layer.norm_weight);
    layers.back().norm_bias = NumbersOf(*layer.norm_bias);
  }
  layers.back().activation = Activation::kNone;
  return layers;
}

int64_t EvaluatorBytes(const Layers& layers) {
  std::vector<const Table*> weights;
  for (const Layer& layer : layers) {
    weights.push_back(&*layer.weight);
  }
  return NetworkBytes(weights);
}

class DynamicPositionBiasEvaluator final : public NetworkEvaluator {
 public:
  DynamicPositionBiasEvaluator(const Layers& layers, bool log_distance,
                               const NumberFormat& format,
                               const KernelSet& kernels)
      : NetworkEvaluator(NetworkOf(layers), format, kernels),
        log_distance_(log_distance) {}

 private:
  void SetInputs(int64_t /*query*/, Range relative_positions,
                 double* in) const override {
    for (int64_t n = 0; n < relative_positions.size(); ++n) {
      in[n] = InputAt(relative_positions.begin + n);
    }
  }

  double InputAt(int64_t relative_position) const {
    const auto distance = static_cast<double>(-relative_position);
    if (!log_distance_) return distance;
    return std::copysign(RoundedLog1p({std::fabs(distance), 0}), distance);
  }

  const bool log_distance_;
};

// `outputs` is 0 for any, as all layers but the last have it.
absl::Status CheckShapes(const std::string& path, const Layer& layer,
                         int64_t inputs, int64_t outputs) {
  const bool is_last = outputs != 0;
  if (outputs == 0) outputs = layer.weight->rows();
  if (outputs > kMaxHidden) {
    return Invalid(path, "weight: got ", outputs, " outputs, want at most ",
                   kMaxHidden);
  }
  ATTNBIAS_RETURN_IF_ERROR(
      CheckShape(path + "weight", *layer.weight,
                 {{outputs, is_last ? "heads (num_heads)" : "outputs"},
                  {inputs, "inputs"}}));
  if (layer.norm_weight.has_value() != layer.norm_bias.has_value()) {
    return Invalid(path, "norm_bias: got ",
                   layer.norm_bias.has_value() ? "" : "no ",
                   "table, want both or neither of norm_weight and "
                   "norm_bias");
  }
  if (is_last && layer.norm_weight.has_value()) {
    return Invalid(path,
                   "norm_weight: got a table, want none: nothing follows "
                   "the last layer");
  }
  for (const auto& [name, table] :
       {std::pair("bias", &layer.bias),
        std::pair("norm_weight", &layer.norm_weight),
        std::pair("norm_bias", &layer.norm_bias)}) {
    if (!table->has_value()) continue;
    ATTNBIAS_RETURN_IF_ERROR(
        CheckShape(path + name, **table, {{outputs, "outputs"}}));
  }
  return absl::OkStatus();
}

// `reach` bounds the inputs' magnitude, then the outputs'.
absl::Status CheckReach(const std::string& path, const Layer& layer,
                        double& reach) {
  reach = ReachOf(*layer.weight, layer.bias, reach);
  if (reach < kMostReach && layer.norm_weight.has_value()) {
    // A normalised feature is at most the root of their number, and so far
    // below kMaxHidden.
    double most = 0;
    for (int64_t i = 0; i < layer.norm_weight->size(); ++i) {
      most = std::max(most, std::fabs(layer.norm_weight->At(i)) * kMaxHidden +
                                std::fabs(layer.norm_bias->At(i)));
    }
    reach = most;
  }
  if (reach < kMostReach) return absl::OkStatus();
  return Invalid(path, "weight: got numbers that may reach ", reach,
                 ", want less than ", kMostReach);
}

absl::Status CheckLayers(const Layers& layers, int64_t num_heads) {
  int64_t numbers = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    numbers += layers[i].weight->size();
    if (numbers > kMaxNetworkNumbers) {
      return Invalid("dynamic_position_bias.layers[", i,
                     "].weight: got, with the layers before, ", numbers,
                     " numbers, want at most ", kMaxNetworkNumbers);
    }
  }
  int64_t inputs = 1;
  auto reach = static_cast<double>(kRelativePositions.end);
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto path = absl::StrCat("dynamic_position_bias.layers[", i, "].");
    const int64_t outputs = i + 1 == layers.size() ? num_heads : 0;
    ATTNBIAS_RETURN_IF_ERROR(CheckShapes(path, layers[i], inputs, outputs));
    ATTNBIAS_RETURN_IF_ERROR(CheckReach(path, layers[i], reach));
    inputs = layers[i].weight->rows();
  }
  return absl::OkStatus();
}

absl::StatusOr<Encoding> DescribeDynamicPositionBias(
    const v1::DynamicPositionBias& spec, const Tables& tables) {
  const Layers layers = LayersIn(spec, tables);
  ATTNBIAS_RETURN_IF_ERROR(CheckLayers(layers, spec.num_heads()));
  return Encoding{
      .structure = Structure::kToeplitz,
      .lanes = spec.num_heads(),
      .has_heads = true,
      .domain = kRelativePositions,
      .evaluator_bytes = EvaluatorBytes(layers),
      .prepare = [layers, log_distance = spec.log_distance()](
                     const NumberFormat& format, const KernelSet& kernels) {
        return std::make_unique<DynamicPositionBiasEvaluator>(
            layers, log_distance, format, kernels);
      }};
}

const EncodingRegistration kDynamicPositionBias(
    v1::TensorSpec::kDynamicPositionBiasFieldNumber,
    &DescribeDynamicPositionBias);

}  // namespace
}  // namespace attnbias
