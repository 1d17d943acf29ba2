// SPDX-License-Identifier: Apache-2.0
// FIRE (Li et al. 2023): an MLP of logarithmic distances, normalised row by row.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "core/base/errors.h"
#include "core/encoding/common/network.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/numerics/elementary.h"
#include "core/table/table.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

// Logarithms of distances below this are cached: 2 MiB.
constexpr int64_t kMostKeptDistances = int64_t{1} << 18;

// Returns ln(c x + 1), the nearest double.
double LogOfTimes(double c, double x) { return RoundedLog1p(TwoProduct(c, x)); }

class FireEvaluator final : public NetworkEvaluator {
 public:
  FireEvaluator(const v1::Fire& spec, absl::Span<const NetworkLayer> layers,
                const NumberFormat& format, const KernelSet& kernels)
      : NetworkEvaluator(layers, format, kernels), spec_(spec), logs_(kMostKeptDistances) {}

 private:
  void SetInputs(int64_t query, Range keys, double* in) const override {
    const double normaliser =
        LogOfTimes(spec_.c(), std::max(static_cast<double>(query), spec_.threshold())) +
        spec_.eps();
    for (int64_t key = keys.begin; key < keys.end; ++key) {
      *in++ = LogOfDistance(std::abs(query - key)) / normaliser;
    }
  }

  // Computes the logarithms of near distances once, perhaps on several threads at a time.
  double LogOfDistance(int64_t distance) const {
    const auto x = static_cast<double>(distance);
    if (distance >= kMostKeptDistances) return LogOfTimes(spec_.c(), x);
    double log = logs_[distance];
    if (log == 0) logs_[distance] = log = LogOfTimes(spec_.c(), x);
    return log;
  }

  const v1::Fire spec_;
  // 0 where none is computed yet.
  mutable std::vector<std::atomic<double>> logs_;
};

absl::Status CheckTables(const NetworkLayer& hidden, const NetworkLayer& output,
                         int64_t num_heads) {
  const TableAxis units = {hidden.weight.rows(), "hidden"};
  const TableAxis heads = {num_heads, "heads (num_heads)"};
  if (units.length > kMaxHidden) {
    return Invalid("fire.hidden_weight: got ", units.length, " hidden units, want at most ",
                   kMaxHidden);
  }
  ATTNBIAS_RETURN_IF_ERROR(CheckShape("fire.hidden_weight", hidden.weight, {units, {1, "input"}}));
  ATTNBIAS_RETURN_IF_ERROR(CheckShape("fire.output_weight", output.weight, {heads, units}));
  ATTNBIAS_RETURN_IF_ERROR(CheckNetworkSize("fire.output_weight", output.weight));
  if (hidden.bias.has_value()) {
    ATTNBIAS_RETURN_IF_ERROR(CheckShape("fire.hidden_bias", *hidden.bias, {units}));
  }
  if (!output.bias.has_value()) return absl::OkStatus();
  return CheckShape("fire.output_bias", *output.bias, {heads});
}

absl::StatusOr<Encoding> DescribeFire(const v1::Fire& spec, const Tables& tables) {
  const std::vector<NetworkLayer> layers = {
      {.weight = *tables.Get(spec.hidden_weight()),
       .bias = tables.Get(spec.hidden_bias()),
       .activation = v1::ACTIVATION_RELU},
      {.weight = *tables.Get(spec.output_weight()), .bias = tables.Get(spec.output_bias())}};
  ATTNBIAS_RETURN_IF_ERROR(CheckTables(layers[0], layers[1], spec.num_heads()));
  const auto farthest = static_cast<double>(2 * kMaxPosition);
  double reach = LogOfTimes(spec.c(), farthest) / LogOfTimes(spec.c(), spec.threshold());
  ATTNBIAS_RETURN_IF_ERROR(CheckReach("fire.hidden_weight", layers[0], reach));
  ATTNBIAS_RETURN_IF_ERROR(CheckReach("fire.output_weight", layers[1], reach));
  return Encoding{
      .structure = Structure::kDense,
      .lanes = spec.num_heads(),
      .has_heads = true,
      .domain = kAllPositions,
      .evaluator_bytes = NetworkBytes(layers) + kMostKeptDistances * int64_t{sizeof(double)},
      .prepare = [spec, layers](const NumberFormat& format, const KernelSet& kernels) {
        return std::make_unique<FireEvaluator>(spec, layers, format, kernels);
      }};
}

const EncodingRegistration kFire(v1::TensorSpec::kFireFieldNumber, &DescribeFire);

}  // namespace
}  // namespace attnbias
