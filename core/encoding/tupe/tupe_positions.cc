// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/tupe/tupe_positions.h"

#include <algorithm>
#include <cmath>

#include "core/encoding/common/linear.h"

namespace attnbias {
namespace {

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

}  // namespace

TupePositions::TupePositions(const TupeSpec& spec, const KernelSet& kernels)
    : rows_(spec.position_table->rows()),
      dim_(spec.position_table->columns()),
      head_dim_(dim_ / spec.num_heads),
      queries_(rows_ * dim_),
      keys_(dim_ * rows_) {
  std::vector<double> positions = NumbersOf(*spec.position_table);
  if (spec.norm_weight.has_value()) {
    const LayerNorm norm(spec);
    for (int64_t row = 0; row < rows_; ++row)
      norm.Apply(&positions[row * dim_]);
  }
  const Linear query(*spec.query_weight, spec.query_bias);
  const Linear key(*spec.key_weight, spec.key_bias);
  std::vector<double> in(dim_ * kBatch);
  std::vector<double> out(dim_ * kBatch);
  for (int64_t first = 0; first < rows_; first += kBatch) {
    const int64_t count = std::min(kBatch, rows_ - first);
    for (int64_t n = 0; n < count; ++n) {
      for (int64_t i = 0; i < dim_; ++i) {
        in[i * kBatch + n] = positions[(first + n) * dim_ + i];
      }
    }
    query.Apply(in.data(), {0, dim_}, kernels, out.data());
    for (int64_t n = 0; n < count; ++n) {
      for (int64_t i = 0; i < dim_; ++i) {
        queries_[(first + n) * dim_ + i] =
            out[i * kBatch + n] * *spec.position_scale;
      }
    }
    key.Apply(in.data(), {0, dim_}, kernels, out.data());
    for (int64_t i = 0; i < dim_; ++i) {
      std::copy_n(&out[i * kBatch], count, &keys_[i * rows_ + first]);
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
