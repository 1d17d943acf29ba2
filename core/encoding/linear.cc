// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/linear.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/encoding/checks.h"

namespace attnbias {

std::vector<double> NumbersOf(const Table& table) {
  std::vector<double> numbers(table.size());
  for (int64_t i = 0; i < table.size(); ++i) numbers[i] = table.At(i);
  return numbers;
}

Linear::Linear(const Table& weight, const std::optional<Table>& bias)
    : inputs_(weight.columns()),
      outputs_(weight.rows()),
      weight_(weight.size()),
      bias_(bias.has_value() ? NumbersOf(*bias)
                             : std::vector<double>(outputs_)) {
  for (int64_t out = 0; out < outputs_; ++out) {
    for (int64_t in = 0; in < inputs_; ++in) {
      weight_[in * outputs_ + out] = weight.At(out, in);
    }
  }
}

void Linear::Apply(const double* in, Range outputs, const KernelSet& kernels,
                   double* out) const {
  std::copy(bias_.begin() + outputs.begin, bias_.begin() + outputs.end, out);
  kernels.add_products(in, {weight_.data() + outputs.begin, outputs_, inputs_},
                       out, outputs.size());
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
