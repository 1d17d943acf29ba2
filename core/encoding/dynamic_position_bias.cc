// SPDX-License-Identifier: Apache-2.0
// Dynamic position bias (Wang et al. 2021, CrossFormer, in one dimension): an
// MLP of the distance from key to query.
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
#include "core/numerics/elementary.h"
#include "core/numerics/rounding.h"

namespace attnbias {
namespace {

constexpr size_t kMaxLayers = 64;
constexpr int64_t kMaxWidth = 65536;
constexpr double kNormEps = 1e-5;

// A layer's linear part, and its norm where it has one.
struct Layer {
  explicit Layer(const PositionMlpLayer& spec)
      : linear(*spec.weight, spec.bias) {
    if (!spec.norm_weight.has_value()) return;
    norm_weight = NumbersOf(*spec.norm_weight);
    norm_bias = NumbersOf(*spec.norm_bias);
  }

  Linear linear;
  std::vector<double> norm_weight;
  std::vector<double> norm_bias;
};

// LayerNorm over the features of each member of a batch: sums in the order of
// the features, and every operation rounded by itself.
void Normalise(const Layer& layer, std::vector<double>& features) {
  const auto count = static_cast<int64_t>(layer.norm_weight.size());
  double mean[kBatch] = {};
  double deviation[kBatch] = {};
  for (int64_t f = 0; f < count; ++f) {
    for (int64_t c = 0; c < kBatch; ++c) mean[c] += features[f * kBatch + c];
  }
  for (double& each : mean) each /= static_cast<double>(count);
  for (int64_t f = 0; f < count; ++f) {
    for (int64_t c = 0; c < kBatch; ++c) {
      double& feature = features[f * kBatch + c];
      feature -= mean[c];
      deviation[c] += feature * feature;
    }
  }
  for (double& each : deviation) {
    each = std::sqrt(each / static_cast<double>(count) + kNormEps);
  }
  for (int64_t f = 0; f < count; ++f) {
    for (int64_t c = 0; c < kBatch; ++c) {
      double& feature = features[f * kBatch + c];
      feature = feature / deviation[c] * layer.norm_weight[f];
      feature += layer.norm_bias[f];
    }
  }
}

// From here on 1 + exp(-x) rounds to 1.
constexpr double kSiluIsIdentity = 40;

void ApplySilu(std::vector<double>& features) {
  for (double& x : features) {
    if (x < kSiluIsIdentity) x = x / (1 + RoundedExp(-x));
  }
}

class DynamicPositionBiasEvaluator final : public Evaluator {
 public:
  DynamicPositionBiasEvaluator(const DynamicPositionBiasSpec& spec,
                               double scale, DataType type,
                               const KernelSet& kernels)
      : layers_(spec.layers.begin(), spec.layers.end()),
        log_distance_(spec.log_distance),
        scale_(scale),
        type_(type),
        kernels_(kernels) {}

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override {
    for (int64_t at = block.span.begin; at < block.span.end; at += kBatch) {
      const int64_t count = std::min(kBatch, block.span.end - at);
      const std::vector<double> biases = BiasesFrom(at, block.lanes);
      for (int64_t lane = 0; lane < block.lanes.size(); ++lane) {
        std::byte* to = out + lane * lane_stride_bytes +
                        (at - block.span.begin) * SizeOf(type_);
        for (int64_t c = 0; c < count; ++c) {
          RoundProduct(biases[lane * kBatch + c], scale_, type_, to);
          to += SizeOf(type_);
        }
      }
    }
  }

  int64_t work_per_coordinate() const override {
    int64_t products = 1;
    for (const Layer& layer : layers_) products += layer.linear.products();
    return products;
  }

 private:
  // [lanes, kBatch] at relative positions first, first + 1, ...
  std::vector<double> BiasesFrom(int64_t first, Range lanes) const {
    std::vector<double> features(kBatch);
    for (int64_t c = 0; c < kBatch; ++c) features[c] = InputAt(first + c);
    for (const Layer& layer : layers_) {
      const bool is_last = &layer == &layers_.back();
      const Range outputs = is_last ? lanes : Range{0, layer.linear.outputs()};
      std::vector<double> result(outputs.size() * kBatch);
      layer.linear.Apply(features.data(), outputs, kernels_, result.data());
      if (!layer.norm_weight.empty()) Normalise(layer, result);
      if (!is_last) ApplySilu(result);
      features = std::move(result);
    }
    return features;
  }

  double InputAt(int64_t relative_position) const {
    const auto distance = static_cast<double>(-relative_position);
    if (!log_distance_) return distance;
    return std::copysign(RoundedLog1p({std::fabs(distance), 0}), distance);
  }

  const std::vector<Layer> layers_;
  const bool log_distance_;
  const double scale_;
  const DataType type_;
  const KernelSet& kernels_;
};

class DynamicPositionBiasEncoding final : public Encoding {
 public:
  DynamicPositionBiasEncoding(const DynamicPositionBiasSpec& spec, double scale)
      : spec_(spec), scale_(scale) {}

  std::string_view name() const override { return "dynamic_position_bias"; }
  Structure structure() const override { return Structure::kToeplitz; }
  int64_t lanes() const override { return spec_.num_heads; }
  int64_t width() const override { return 1; }
  Range domain() const override { return kRelativePositions; }

  void WriteIdentity(CanonicalWriter& writer) const override {
    writer.Integer(1, spec_.num_heads);
    writer.Integer(2, spec_.log_distance ? 1 : 0);
    std::string digests;
    for (const PositionMlpLayer& layer : spec_.layers) {
      for (const auto* table :
           {&layer.weight, &layer.bias, &layer.norm_weight, &layer.norm_bias}) {
        absl::StrAppend(&digests, table->has_value() ? (*table)->sha256() : "",
                        ";");
      }
    }
    writer.Bytes(3, digests);
    writer.Real(101, scale_, 1);
  }

  std::unique_ptr<const Evaluator> Prepare(
      DataType type, const KernelSet& kernels) const override {
    return std::make_unique<DynamicPositionBiasEvaluator>(spec_, scale_, type,
                                                          kernels);
  }

 private:
  const DynamicPositionBiasSpec spec_;
  const double scale_;
};

// What is checked of a layer, and what it does to magnitudes.
class LayerCheck {
 public:
  LayerCheck(const PositionMlpLayer& layer, size_t index)
      : layer_(layer),
        path_(absl::StrCat("dynamic_position_bias.layers[", index, "].")) {}

  // `outputs` is 0 for any.
  absl::Status Shapes(int64_t inputs, int64_t outputs, bool is_last) const {
    if (!layer_.weight.has_value()) {
      return Invalid(path_, "weight: not set, want a table of [outputs, ",
                     inputs, " inputs]");
    }
    if (outputs == 0) outputs = layer_.weight->rows();
    if (outputs > kMaxWidth) {
      return Invalid(path_, "weight: got ", outputs, " outputs, want at most ",
                     kMaxWidth);
    }
    ATTNBIAS_RETURN_IF_ERROR(CheckShape(
        path_ + "weight", *layer_.weight,
        {{outputs, is_last ? "heads" : "outputs"}, {inputs, "inputs"}}));
    if (layer_.norm_weight.has_value() != layer_.norm_bias.has_value()) {
      return Invalid(path_, "norm_bias: got ",
                     layer_.norm_bias.has_value() ? "" : "no ",
                     "table, want both or neither of norm_weight and "
                     "norm_bias");
    }
    if (is_last && layer_.norm_weight.has_value()) {
      return Invalid(path_,
                     "norm_weight: got a table, want none: nothing follows "
                     "the last layer");
    }
    for (const auto& [name, table] :
         {std::pair("bias", &layer_.bias),
          std::pair("norm_weight", &layer_.norm_weight),
          std::pair("norm_bias", &layer_.norm_bias)}) {
      if (!table->has_value()) continue;
      ATTNBIAS_RETURN_IF_ERROR(
          CheckShape(path_ + name, **table, {{outputs, "outputs"}}));
    }
    return absl::OkStatus();
  }

  // `reach` bounds the inputs' magnitude, then the outputs'.
  absl::Status Reach(double& reach) const {
    reach = ReachOf(*layer_.weight, layer_.bias, reach);
    if (reach < kMostReach && layer_.norm_weight.has_value()) {
      // A normalised feature is at most the root of their number, and so far
      // below kMaxWidth.
      double most = 0;
      for (int64_t i = 0; i < layer_.norm_weight->size(); ++i) {
        most = std::max(most, std::fabs(layer_.norm_weight->At(i)) * kMaxWidth +
                                  std::fabs(layer_.norm_bias->At(i)));
      }
      reach = most;
    }
    if (reach < kMostReach) return absl::OkStatus();
    return Invalid(path_, "weight: got numbers that may reach ", reach,
                   ", want less than ", kMostReach);
  }

 private:
  const PositionMlpLayer& layer_;
  const std::string path_;
};

absl::Status CheckLayers(const DynamicPositionBiasSpec& spec) {
  const size_t count = spec.layers.size();
  if (count == 0 || count > kMaxLayers) {
    return Invalid("dynamic_position_bias.layers: got ", count, ", want 1 to ",
                   kMaxLayers);
  }
  int64_t numbers = 0;
  for (size_t i = 0; i < count; ++i) {
    if (spec.layers[i].weight.has_value()) {
      numbers += spec.layers[i].weight->size();
    }
    if (numbers > kMaxNetworkNumbers) {
      return Invalid("dynamic_position_bias.layers[", i,
                     "].weight: got, with the layers before, ", numbers,
                     " numbers, want at most ", kMaxNetworkNumbers);
    }
  }
  int64_t inputs = 1;
  auto reach = static_cast<double>(kRelativePositions.end);
  for (size_t i = 0; i < count; ++i) {
    const LayerCheck check(spec.layers[i], i);
    const bool is_last = i + 1 == count;
    ATTNBIAS_RETURN_IF_ERROR(
        check.Shapes(inputs, is_last ? spec.num_heads : 0, is_last));
    ATTNBIAS_RETURN_IF_ERROR(check.Reach(reach));
    inputs = spec.layers[i].weight->rows();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const DynamicPositionBiasSpec& spec,
                                         const Output& output) {
  ATTNBIAS_RETURN_IF_ERROR(
      CheckNumHeads("dynamic_position_bias.num_heads", spec.num_heads));
  ATTNBIAS_RETURN_IF_ERROR(CheckLayers(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckBias(output, "dynamic_position_bias"));
  ATTNBIAS_RETURN_IF_ERROR(CheckScale(output));
  return std::make_shared<const DynamicPositionBiasEncoding>(spec,
                                                             output.scale);
}

}  // namespace attnbias
