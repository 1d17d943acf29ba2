// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/common/linear.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/invalid.h"

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

}  // namespace

std::vector<double> NumbersOf(const Table& table) {
  return NumbersIn(table, {0, table.size()});
}

Linear::Linear(const Table& weight, const std::optional<Table>& bias,
               Range outputs)
    : inputs_(weight.columns()),
      outputs_(outputs.size()),
      weight_(
          NumbersIn(weight, {outputs.begin * inputs_, outputs.end * inputs_})),
      bias_(bias.has_value() ? NumbersIn(*bias, outputs)
                             : std::vector<double>(outputs_)) {}

void Linear::Apply(const double* in, Range outputs, const KernelSet& kernels,
                   double* out) const {
  for (int64_t o = outputs.begin; o < outputs.end; ++o) {
    std::fill_n(out, kBatch, bias_[o]);
    kernels.add_products(&weight_[o * inputs_], {in, kBatch, inputs_}, out,
                         kBatch);
    out += kBatch;
  }
}

double ReachOf(const Table& weight, const std::optional<Table>& bias,
               double reach) {
  double most = 0;
  for (int64_t out = 0; out < weight.rows(); ++out) {
    double sum = bias.has_value() ? std::fabs(bias->At(out)) : 0;
    for (int64_t in = 0; in < weight.columns(); ++in) {
      sum += std::fabs(weight.At(out, in)) * reach;
    }
    most = std::max(most, sum);
  }
  return most;
}

absl::Status CheckWithinF32(absl::string_view field, const Table& table) {
  if (table.data_type() != DataType::kF64) return absl::OkStatus();
  for (int64_t i = 0; i < table.size(); ++i) {
    const double number = table.At(i);
    if (std::fabs(number) <= std::numeric_limits<float>::max()) continue;
    return Invalid(field, ": got ", number, " at ", i,
                   ", want numbers within F32's range");
  }
  return absl::OkStatus();
}

}  // namespace attnbias
