// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/tupe_positions.h"

#include <algorithm>
#include <cmath>

#include "core/encoding/linear.h"

namespace attnbias {
namespace {

// Outputs of a layer computed for all positions before the next ones, so that
// their weights stay in a cache.
constexpr int64_t kOutputsAtOnce = 64;

class LayerNorm {
 public:
  explicit LayerNorm(const TupeSpec& spec)
      : weight_(NumbersOf(*spec.norm_weight)),
        bias_(NumbersOf(*spec.norm_bias)),
        eps_(spec.norm_eps) {}

  void Apply(double* row) const {
    const auto count = static_cast<double>(weight_.size());
    double sum = 0;
    for (size_t i = 0; i < weight_.size(); ++i) sum += row[i];
    const double mean = sum / count;
    double squares = 0;
    for (size_t i = 0; i < weight_.size(); ++i) {
      row[i] -= mean;
      squares = std::fma(row[i], row[i], squares);
    }
    const double deviation = std::sqrt(squares / count + eps_);
    for (size_t i = 0; i < weight_.size(); ++i) {
      row[i] = std::fma(row[i] / deviation, weight_[i], bias_[i]);
    }
  }

 private:
  const std::vector<double> weight_;
  const std::vector<double> bias_;
  const double eps_;
};

// What a layer makes of each row of [rows, layer.inputs()].
std::vector<double> Project(const Linear& layer,
                            const std::vector<double>& positions,
                            const KernelSet& kernels) {
  const auto rows = static_cast<int64_t>(positions.size()) / layer.inputs();
  std::vector<double> out(rows * layer.outputs());
  for (int64_t begin = 0; begin < layer.outputs(); begin += kOutputsAtOnce) {
    const Range outputs = {begin,
                           std::min(begin + kOutputsAtOnce, layer.outputs())};
    for (int64_t row = 0; row < rows; ++row) {
      layer.Apply(&positions[row * layer.inputs()], outputs, kernels,
                  &out[row * layer.outputs() + begin]);
    }
  }
  return out;
}

}  // namespace

TupePositions::TupePositions(const TupeSpec& spec, const KernelSet& kernels)
    : rows_(spec.position_table->rows()),
      dim_(spec.position_table->columns()),
      head_dim_(dim_ / spec.num_heads),
      keys_(dim_ * rows_) {
  std::vector<double> positions = NumbersOf(*spec.position_table);
  if (spec.norm_weight.has_value()) {
    const LayerNorm norm(spec);
    for (int64_t row = 0; row < rows_; ++row)
      norm.Apply(&positions[row * dim_]);
  }
  queries_ =
      Project(Linear(*spec.query_weight, spec.query_bias), positions, kernels);
  for (double& each : queries_) each *= *spec.position_scale;
  const std::vector<double> keys =
      Project(Linear(*spec.key_weight, spec.key_bias), positions, kernels);
  for (int64_t row = 0; row < rows_; ++row) {
    for (int64_t i = 0; i < dim_; ++i) {
      keys_[i * rows_ + row] = keys[row * dim_ + i];
    }
  }
}

void TupePositions::Dot(int64_t head, int64_t query, Range keys,
                        const KernelSet& kernels, double* out) const {
  const int64_t column = head * head_dim_;
  std::fill_n(out, keys.size(), 0.0);
  kernels.add_products(&queries_[query * dim_ + column],
                       {&keys_[column * rows_ + keys.begin], rows_, head_dim_},
                       out, keys.size());
}

}  // namespace attnbias
