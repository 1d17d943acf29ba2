// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/common/network.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/errors.h"
#include "core/numerics/double_double.h"

namespace attnbias {
namespace {

std::vector<double> NumbersIn(const Table& table, Range indices) {
  std::vector<double> numbers;
  numbers.reserve(indices.size());
  for (int64_t i = indices.begin; i < indices.end; ++i) {
    numbers.push_back(table.At(i));
  }
  return numbers;
}

// Neither squares nor sums of squares overflow if the values in all layers are below this bound.
constexpr double kMostReach = 1e140;

constexpr double kNormEps = 1e-5;

void Activate(v1::Activation activation, std::vector<double>& features) {
  for (double& x : features) {
    switch (activation) {
      case v1::ACTIVATION_RELU:
        x = std::max(x, 0.0);
        break;
      case v1::ACTIVATION_SILU:
        x = x / (1 + RoundedExp(-x));
        break;
      default:
        return;
    }
  }
}

struct Layer {
  explicit Layer(const NetworkLayer& layer)
      : linear(layer.weight, layer.bias, {0, layer.weight.rows()}), activation(layer.activation) {
    if (!layer.norm_weight.has_value()) return;
    norm_weight = NumbersOf(*layer.norm_weight);
    norm_bias = NumbersOf(*layer.norm_bias);
  }

  // Returns some of the outputs, [outputs, kBatch], for inputs [inputs, kBatch].
  std::vector<double> OutputsOf(const std::vector<double>& inputs, Range outputs,
                                const KernelSet& kernels) const {
    std::vector<double> result(outputs.size() * kBatch);
    linear.Apply(inputs.data(), outputs, kernels, result.data());
    if (!norm_weight.empty()) Normalise(result);
    Activate(activation, result);
    return result;
  }

  // Applies LayerNorm to each member of a batch: sums in feature order and rounds each operation
  // separately.
  void Normalise(std::vector<double>& features) const {
    const auto count = static_cast<int64_t>(norm_weight.size());
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
        feature = feature / deviation[c] * norm_weight[f];
        feature += norm_bias[f];
      }
    }
  }

  Linear linear;
  v1::Activation activation;
  std::vector<double> norm_weight;
  std::vector<double> norm_bias;
};

}  // namespace

std::vector<double> NumbersOf(const Table& table) { return NumbersIn(table, {0, table.size()}); }

Linear::Linear(const Table& weight, const std::optional<Table>& bias, Range outputs)
    : inputs_(weight.columns()),
      outputs_(outputs.size()),
      weight_(NumbersIn(weight, {outputs.begin * inputs_, outputs.end * inputs_})),
      bias_(bias.has_value() ? NumbersIn(*bias, outputs) : std::vector<double>(outputs_)) {}

void Linear::Apply(const double* in, Range outputs, const KernelSet& kernels, double* out) const {
  for (int64_t o = outputs.begin; o < outputs.end; ++o) {
    std::fill_n(out, kBatch, bias_[o]);
    kernels.add_products(&weight_[o * inputs_], {in, kBatch, inputs_}, out, kBatch);
    out += kBatch;
  }
}

absl::Status CheckLayer(absl::string_view weight_field, const NetworkLayer& layer, double& reach) {
  if (layer.weight.rows() > kMaxHidden) {
    return Invalid(weight_field, ": got ", layer.weight.rows(), " outputs, want at most ",
                   kMaxHidden);
  }
  double most = 0;
  for (int64_t out = 0; out < layer.weight.rows(); ++out) {
    double sum = layer.bias.has_value() ? std::fabs(layer.bias->At(out)) : 0;
    for (int64_t in = 0; in < layer.weight.columns(); ++in) {
      sum += std::fabs(layer.weight.At(out, in)) * reach;
    }
    most = std::max(most, sum);
  }
  if (most < kMostReach && layer.norm_weight.has_value()) {
    // A normalized feature is at most the square root of the number of features, far below
    // kMaxHidden.
    most = 0;
    for (int64_t i = 0; i < layer.norm_weight->size(); ++i) {
      most = std::max(most, std::fabs(layer.norm_weight->At(i)) * kMaxHidden +
                                std::fabs(layer.norm_bias->At(i)));
    }
  }
  reach = most;
  if (reach < kMostReach) return absl::OkStatus();
  return Invalid(weight_field, ": got numbers that may reach ", reach, ", want less than ",
                 kMostReach);
}

EvaluatorPtr PrepareNetwork(
    absl::Span<const NetworkLayer> layers, DataType type, const KernelSet& kernels,
    std::function<void(int64_t query, Range coordinates, double* in)> set_inputs,
    std::function<void(double output, std::byte* out)> write) {
  auto fill = [layers = std::vector<Layer>(layers.begin(), layers.end()), size = SizeOf(type),
               &kernels, set_inputs = std::move(set_inputs), write = std::move(write)](
                  const Block& block, std::byte* out, int64_t lane_stride_bytes) {
    const int64_t inputs = layers.front().linear.inputs();
    for (int64_t at = block.span.begin; at < block.span.end; at += kBatch) {
      const Range batch = {at, std::min(at + kBatch, block.span.end)};
      std::vector<double> features(inputs * kBatch);
      set_inputs(block.query, batch, features.data());
      for (const Layer& layer : layers) {
        const bool is_last = &layer == &layers.back();
        const Range outputs = is_last ? block.lanes : Range{0, layer.linear.outputs()};
        features = layer.OutputsOf(features, outputs, kernels);
      }
      for (int64_t lane = 0; lane < block.lanes.size(); ++lane) {
        std::byte* to = out + lane * lane_stride_bytes + (at - block.span.begin) * size;
        for (int64_t n = 0; n < batch.size(); ++n, to += size) {
          write(features[lane * kBatch + n], to);
        }
      }
    }
  };
  return MakeEvaluator(std::move(fill), kBatch);
}

int64_t NetworkBytes(absl::Span<const NetworkLayer> layers) {
  int64_t kept = 0;
  int64_t features = 0;
  for (const NetworkLayer& layer : layers) {
    const Table& weight = layer.weight;
    // The weight, its bias, and LayerNorm's weight and bias.
    kept += weight.size() + 3 * weight.rows();
    features = std::max(features, weight.columns() + weight.rows());
  }
  return (kept + features * kBatch) * int64_t{sizeof(double)};
}

}  // namespace attnbias
