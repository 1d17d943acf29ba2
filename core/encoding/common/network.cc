// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/common/network.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/errors.h"
#include "core/numerics/elementary.h"

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

// Bound of the layers' numbers, below which neither a square nor a sum of squares overflows.
constexpr double kMostReach = 1e140;

constexpr double kNormEps = 1e-5;

void Activate(v1::Activation activation, std::vector<double>& features) {
  // For x of at least this, 1 + exp(-x) rounds to 1.
  constexpr double kSiluIsIdentity = 40;
  for (double& x : features) {
    switch (activation) {
      case v1::ACTIVATION_RELU:
        x = std::max(x, 0.0);
        break;
      case v1::ACTIVATION_SILU:
        if (x < kSiluIsIdentity) x = x / (1 + RoundedExp(-x));
        break;
      default:
        return;
    }
  }
}

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

absl::Status CheckReach(absl::string_view weight_field, const NetworkLayer& layer, double& reach) {
  double most = 0;
  for (int64_t out = 0; out < layer.weight.rows(); ++out) {
    double sum = layer.bias.has_value() ? std::fabs(layer.bias->At(out)) : 0;
    for (int64_t in = 0; in < layer.weight.columns(); ++in) {
      sum += std::fabs(layer.weight.At(out, in)) * reach;
    }
    most = std::max(most, sum);
  }
  if (most < kMostReach && layer.norm_weight.has_value()) {
    // A normalised feature is at most the root of the number of features, far below kMaxHidden.
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

void NetworkEvaluator::Fill(const Block& block, std::byte* out, int64_t lane_stride_bytes) const {
  const int64_t element_bytes = SizeOf(format_.type);
  const int64_t inputs = layers_.front().linear.inputs();
  for (int64_t at = block.span.begin; at < block.span.end; at += kBatch) {
    const Range batch = {at, std::min(at + kBatch, block.span.end)};
    std::vector<double> in(inputs * kBatch);
    SetInputs(block.query, batch, in.data());
    const std::vector<double> outputs = OutputsOf(std::move(in), block.lanes);
    for (int64_t lane = 0; lane < block.lanes.size(); ++lane) {
      std::byte* to = out + lane * lane_stride_bytes + (at - block.span.begin) * element_bytes;
      for (int64_t n = 0; n < batch.size(); ++n) {
        Write(outputs[lane * kBatch + n], to);
        to += element_bytes;
      }
    }
  }
}

// Adds in the order of the features, and rounds every operation by itself.
void NetworkEvaluator::Layer::Normalise(std::vector<double>& features) const {
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

std::vector<double> NetworkEvaluator::OutputsOf(std::vector<double> features, Range lanes) const {
  for (const Layer& layer : layers_) {
    const bool is_last = &layer == &layers_.back();
    const Range outputs = is_last ? lanes : Range{0, layer.linear.outputs()};
    std::vector<double> result(outputs.size() * kBatch);
    layer.linear.Apply(features.data(), outputs, kernels_, result.data());
    if (!layer.norm_weight.empty()) layer.Normalise(result);
    Activate(layer.activation, result);
    features = std::move(result);
  }
  return features;
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
