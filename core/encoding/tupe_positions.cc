// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/tupe_positions.h"

#include <algorithm>
#include <cmath>

#include "core/encoding/linear.h"

namespace attnbias {
namespace {

class LayerNorm {
 public:
  explicit LayerNorm(const TupeSpec& spec)
      : weight_(NumbersOf(*spec.norm_weight)),
        bias_(NumbersOf(*spec.norm_bias)),
        eps_(spec.norm_eps) {}

  void Apply(std::vector<double>& row) const {
    const auto count = static_cast<double>(row.size());
    double sum = 0;
    for (const double x : row) sum += x;
    const double mean = sum / count;
    double squares = 0;
    for (double& x : row) {
      x -= mean;
      squares = std::fma(x, x, squares);
    }
    const double deviation = std::sqrt(squares / count + eps_);
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = std::fma(row[i] / deviation, weight_[i], bias_[i]);
    }
  }

 private:
  const std::vector<double> weight_;
  const std::vector<double> bias_;
  const double eps_;
};

}  // namespace

TupePositions::TupePositions(const TupeSpec& spec, const KernelSet& kernels)
    : rows_(spec.position_table->rows()),
      head_dim_(spec.position_table->columns() / spec.num_heads),
      dim_(spec.position_table->columns()),
      queries_(rows_ * dim_),
      keys_(dim_ * rows_) {
  std::optional<LayerNorm> norm;
  if (spec.norm_weight.has_value()) norm.emplace(spec);
  const Linear to_query(*spec.query_weight, spec.query_bias);
  const Linear to_key(*spec.key_weight, spec.key_bias);
  std::vector<double> position(dim_);
  std::vector<double> key(dim_);
  for (int64_t row = 0; row < rows_; ++row) {
    for (int64_t i = 0; i < dim_; ++i) {
      position[i] = spec.position_table->At(row, i);
    }
    if (norm.has_value()) norm->Apply(position);
    double* query = &queries_[row * dim_];
    to_query.Apply(position.data(), {0, dim_}, kernels, query);
    to_key.Apply(position.data(), {0, dim_}, kernels, key.data());
    for (int64_t i = 0; i < dim_; ++i) {
      query[i] *= *spec.position_scale;
      keys_[i * rows_ + row] = key[i];
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
