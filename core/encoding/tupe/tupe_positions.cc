// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/tupe/tupe_positions.h"

#include <algorithm>
#include <cmath>

#include "core/encoding/common/linear.h"

namespace attnbias {
namespace {

// Columns of a projection whose weights become doubles together: a MiB of them.
// All of a large model's would take more than everything else.
int64_t ColumnsAtOnce(int64_t dim) {
  constexpr int64_t kWeights = int64_t{1} << 17;
  return std::clamp<int64_t>(kWeights / dim, 1, dim);
}

class LayerNorm {
 public:
  LayerNorm(const TupeTables& tables, double eps)
      : weight_(NumbersOf(*tables.norm_weight)),
        bias_(NumbersOf(*tables.norm_bias)),
        eps_(eps) {}

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

TupePositions::TupePositions(const v1::Tupe& spec, const TupeTables& tables,
                             const KernelSet& kernels)
    : rows_(tables.position_table->rows()),
      dim_(tables.position_table->columns()),
      head_dim_(dim_ / spec.num_heads()),
      queries_(rows_ * dim_),
      keys_(dim_ * rows_) {
  std::vector<double> positions = NumbersOf(*tables.position_table);
  if (tables.norm_weight.has_value()) {
    const LayerNorm norm(tables, spec.norm_eps());
    for (int64_t row = 0; row < rows_; ++row)
      norm.Apply(&positions[row * dim_]);
  }
  Project(*tables.query_weight, tables.query_bias, positions, kernels,
          [&](Range rows, int64_t column, const double* projected) {
            for (int64_t row = rows.begin; row < rows.end; ++row) {
              queries_[row * dim_ + column] =
                  *projected++ * spec.position_scale();
            }
          });
  Project(*tables.key_weight, tables.key_bias, positions, kernels,
          [&](Range rows, int64_t column, const double* projected) {
            std::copy_n(projected, rows.size(),
                        &keys_[column * rows_ + rows.begin]);
          });
}

int64_t TupePositions::BytesOf(const Table& position_table) {
  const int64_t dim = position_table.columns();
  const int64_t columns = ColumnsAtOnce(dim);
  // The positions, their queries and keys; a part of a weight, with its bias; a
  // batch of positions, and its projections.
  return (3 * position_table.size() + columns * (dim + 1) +
          (dim + columns) * kBatch) *
         int64_t{sizeof(double)};
}

void TupePositions::Project(
    const Table& weight, const std::optional<Table>& bias,
    const std::vector<double>& positions, const KernelSet& kernels,
    absl::FunctionRef<void(Range rows, int64_t column, const double* projected)>
        write) const {
  const int64_t step = ColumnsAtOnce(dim_);
  std::vector<double> in(dim_ * kBatch);
  std::vector<double> out(step * kBatch);
  for (int64_t column = 0; column < dim_; column += step) {
    const Linear linear(weight, bias, {column, std::min(column + step, dim_)});
    for (int64_t first = 0; first < rows_; first += kBatch) {
      const Range rows = {first, std::min(first + kBatch, rows_)};
      for (int64_t n = 0; n < rows.size(); ++n) {
        for (int64_t i = 0; i < dim_; ++i) {
          in[i * kBatch + n] = positions[(first + n) * dim_ + i];
        }
      }
      linear.Apply(in.data(), {0, linear.outputs()}, kernels, out.data());
      for (int64_t i = 0; i < linear.outputs(); ++i) {
        write(rows, column + i, &out[i * kBatch]);
      }
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
