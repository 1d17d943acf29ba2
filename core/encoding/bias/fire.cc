// SPDX-License-Identifier: Apache-2.0
// FIRE (Li et al. 2023): an MLP over logarithmic distances, normalized row by row.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "core/base/errors.h"
#include "core/encoding/common/network.h"
#include "core/encoding/encoding.h"
#include "core/numerics/double_double.h"
#include "core/numerics/rounding.h"
#include "core/table/table.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

// Logarithms of distances below this are cached, which takes 2 MiB.
constexpr int64_t kMostKeptDistances = int64_t{1} << 18;

double LogOfTimes(double c, double x) { return RoundedLog1p(TwoProduct(c, x)); }

EvaluatorPtr PrepareFire(const v1::Fire& spec, absl::Span<const NetworkLayer> layers,
                         const NumberFormat& format, const KernelSet& kernels) {
  // Logarithms of short distances; 0 until computed.
  const auto logs = std::make_shared<std::vector<std::atomic<double>>>(kMostKeptDistances);
  const auto log_of = [logs, c = spec.c()](int64_t distance) {
    const auto x = static_cast<double>(distance);
    if (distance >= kMostKeptDistances) return LogOfTimes(c, x);
    double log = (*logs)[distance];
    if (log == 0) (*logs)[distance] = log = LogOfTimes(c, x);
    return log;
  };
  const auto set_inputs = [log_of, spec](int64_t query, Range keys, double* in) {
    const double normaliser =
        LogOfTimes(spec.c(), std::max(static_cast<double>(query), spec.threshold())) + spec.eps();
    for (int64_t key = keys.begin; key < keys.end; ++key) {
      *in++ = log_of(std::abs(query - key)) / normaliser;
    }
  };
  const auto write = [format](double output, std::byte* out) {
    RoundProduct(output, format.scale, format.type, out);
  };
  return PrepareNetwork(layers, format.type, kernels, set_inputs, write);
}

absl::StatusOr<Encoding> DescribeFire(const v1::Fire& spec, const Tables& tables) {
  const std::vector<NetworkLayer> layers = {
      {.weight = *tables.Get(spec.hidden_weight()),
       .bias = tables.Get(spec.hidden_bias()),
       .activation = v1::ACTIVATION_RELU},
      {.weight = *tables.Get(spec.output_weight()), .bias = tables.Get(spec.output_bias())}};
  ATTNBIAS_RETURN_IF_ERROR(CheckNetworkSize("fire.output_weight", layers[1].weight));
  const auto farthest = static_cast<double>(2 * kMaxPosition);
  double reach = LogOfTimes(spec.c(), farthest) / LogOfTimes(spec.c(), spec.threshold());
  ATTNBIAS_RETURN_IF_ERROR(CheckLayer("fire.hidden_weight", layers[0], reach));
  ATTNBIAS_RETURN_IF_ERROR(CheckLayer("fire.output_weight", layers[1], reach));
  return Encoding{
      .structure = Structure::kDense,
      .lanes = spec.num_heads(),
      .has_heads = true,
      .domain = kAllPositions,
      .evaluator_bytes = NetworkBytes(layers) + kMostKeptDistances * int64_t{sizeof(double)},
      .prepare = [spec, layers](const NumberFormat& format, const KernelSet& kernels) {
        return PrepareFire(spec, layers, format, kernels);
      }};
}

const EncodingRegistration kFire(v1::TensorSpec::kFireFieldNumber, &DescribeFire);

}  // namespace
}  // namespace attnbias
