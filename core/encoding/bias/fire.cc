// SPDX-License-Identifier: Apache-2.0
// FIRE (Li et al. 2023): an MLP of logarithmic distances, normalised row by
// row.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/errors.h"
#include "core/base/mutex.h"
#include "core/encoding/common/network.h"
#include "core/encoding/common/table_checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/numerics/elementary.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

// Logarithms of distances below this are kept: 2 MiB.
constexpr int64_t kMostKeptDistances = int64_t{1} << 18;

// ln(c x + 1), the nearest double.
double LogOfTimes(double c, double x) { return RoundedLog1p(TwoProduct(c, x)); }

// Each distance's logarithm, computed once. Safe for any number of threads.
class DistanceLogs {
 public:
  using Logs = std::shared_ptr<const std::vector<double>>;

  // All, and half as many while they grow.
  static constexpr int64_t kMostBytes =
      kMostKeptDistances * int64_t{sizeof(double)} * 3 / 2;

  explicit DistanceLogs(double c) : c_(c) {}

  // Those of distances 0 to most at least; null where they are too many.
  Logs UpTo(int64_t most) const {
    if (most >= kMostKeptDistances) return nullptr;
    Logs known = Kept();
    if (most < static_cast<int64_t>(known->size())) return known;
    const size_t size = std::bit_ceil(static_cast<uint64_t>(most) + 1);
    auto grown = std::make_shared<std::vector<double>>();
    grown->reserve(size);
    *grown = *known;
    for (size_t d = known->size(); d < size; ++d) {
      grown->push_back(LogOfTimes(c_, static_cast<double>(d)));
    }
    const MutexLock lock(mutex_);
    if (logs_->size() < grown->size()) logs_ = std::move(grown);
    return logs_;
  }

 private:
  Logs Kept() const {
    const MutexLock lock(mutex_);
    return logs_;
  }

  const double c_;
  mutable Mutex mutex_;
  mutable Logs logs_ ABSL_GUARDED_BY(mutex_) =
      std::make_shared<std::vector<double>>();
};

struct FireTables {
  FireTables(const v1::Fire& spec, const Tables& tables)
      : hidden_weight(*tables.Get(spec.hidden_weight())),
        hidden_bias(tables.Get(spec.hidden_bias())),
        output_weight(*tables.Get(spec.output_weight())),
        output_bias(tables.Get(spec.output_bias())) {}

  Table hidden_weight;
  std::optional<Table> hidden_bias;
  Table output_weight;
  std::optional<Table> output_bias;
};

// Not listed in braces, which would hold every weight twice.
std::vector<NetworkLayer> LayersOf(const FireTables& tables) {
  std::vector<NetworkLayer> layers;
  layers.push_back(
      {Linear(tables.hidden_weight, tables.hidden_bias), v1::ACTIVATION_RELU});
  layers.push_back({Linear(tables.output_weight, tables.output_bias)});
  return layers;
}

class FireEvaluator final : public NetworkEvaluator {
 public:
  FireEvaluator(const v1::Fire& spec, const FireTables& tables,
                const NumberFormat& format, const KernelSet& kernels)
      : NetworkEvaluator(LayersOf(tables), format, kernels),
        spec_(spec),
        logs_(spec.c()) {}

 private:
  void SetInputs(int64_t query, Range keys, double* in) const override {
    const double normaliser =
        LogOfTimes(spec_.c(),
                   std::max(static_cast<double>(query), spec_.threshold())) +
        spec_.eps();
    const DistanceLogs::Logs logs = logs_.UpTo(
        std::max(std::abs(keys.begin - query), std::abs(keys.end - 1 - query)));
    for (int64_t key = keys.begin; key < keys.end; ++key) {
      const int64_t distance = std::abs(query - key);
      const double log =
          logs != nullptr
              ? (*logs)[distance]
              : LogOfTimes(spec_.c(), static_cast<double>(distance));
      *in++ = log / normaliser;
    }
  }

  const v1::Fire spec_;
  const DistanceLogs logs_;
};

absl::Status CheckTables(const FireTables& tables, int64_t num_heads) {
  const int64_t hidden = tables.hidden_weight.rows();
  const TableAxis heads = {num_heads, "heads (num_heads)"};
  if (hidden > kMaxHidden) {
    return Invalid("fire.hidden_weight: got ", hidden,
                   " hidden units, want at most ", kMaxHidden);
  }
  ATTNBIAS_RETURN_IF_ERROR(CheckShape("fire.hidden_weight",
                                      tables.hidden_weight,
                                      {{hidden, "hidden"}, {1, "input"}}));
  ATTNBIAS_RETURN_IF_ERROR(CheckShape(
      "fire.output_weight", tables.output_weight, {heads, {hidden, "hidden"}}));
  ATTNBIAS_RETURN_IF_ERROR(
      CheckNetworkSize("fire.output_weight", tables.output_weight));
  if (tables.hidden_bias.has_value()) {
    ATTNBIAS_RETURN_IF_ERROR(CheckShape("fire.hidden_bias", *tables.hidden_bias,
                                        {{hidden, "hidden"}}));
  }
  if (!tables.output_bias.has_value()) return absl::OkStatus();
  return CheckShape("fire.output_bias", *tables.output_bias, {heads});
}

// No number on the way may overflow.
absl::Status CheckReach(const v1::Fire& spec, const FireTables& tables) {
  const auto farthest = static_cast<double>(2 * kMaxPosition);
  const double input =
      LogOfTimes(spec.c(), farthest) / LogOfTimes(spec.c(), spec.threshold());
  const double hidden =
      ReachOf(tables.hidden_weight, tables.hidden_bias, input);
  const double output =
      ReachOf(tables.output_weight, tables.output_bias, hidden);
  for (const auto& [field, reach] : {std::pair("hidden_weight", hidden),
                                     std::pair("output_weight", output)}) {
    if (reach < kMostReach) continue;
    return Invalid("fire.", field, ": got numbers that may reach ", reach,
                   ", want less than ", kMostReach);
  }
  return absl::OkStatus();
}

absl::StatusOr<Encoding> DescribeFire(const v1::Fire& spec,
                                      const Tables& all_tables) {
  const FireTables tables(spec, all_tables);
  ATTNBIAS_RETURN_IF_ERROR(CheckTables(tables, spec.num_heads()));
  ATTNBIAS_RETURN_IF_ERROR(CheckReach(spec, tables));
  return Encoding{
      .structure = Structure::kDense,
      .lanes = spec.num_heads(),
      .has_heads = true,
      .domain = kAllPositions,
      .evaluator_bytes =
          NetworkBytes({&tables.hidden_weight, &tables.output_weight}) +
          DistanceLogs::kMostBytes,
      .prepare = [=](const NumberFormat& format, const KernelSet& kernels) {
        return std::make_unique<FireEvaluator>(spec, tables, format, kernels);
      }};
}

const EncodingRegistration kFire(v1::TensorSpec::kFireFieldNumber,
                                 &DescribeFire);

}  // namespace
}  // namespace attnbias
