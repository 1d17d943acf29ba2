// SPDX-License-Identifier: Apache-2.0
// FIRE (Li et al. 2023): an MLP of logarithmic distances, normalised row by
// row.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/encoding/checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/linear.h"
#include "core/encoding/make_encoding.h"
#include "core/numerics/elementary.h"
#include "core/numerics/rounding.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

constexpr double kLeastFactor = 1e-30;
constexpr double kMostFactor = 1e30;
constexpr int64_t kMaxHidden = 65536;

// Logarithms of distances below this are kept: 2 MiB.
constexpr int64_t kMostKeptDistances = int64_t{1} << 18;

// ln(c x + 1), the nearest double.
double LogOfTimes(double c, double x) { return RoundedLog1p(TwoProduct(c, x)); }

// Each distance's logarithm, computed once. Safe for any number of threads.
class DistanceLogs {
 public:
  using Logs = std::shared_ptr<const std::vector<double>>;

  explicit DistanceLogs(double c) : c_(c) {}

  // Those of distances 0 to most at least; null where they are too many.
  Logs UpTo(int64_t most) const {
    if (most >= kMostKeptDistances) return nullptr;
    Logs known = Kept();
    if (most < static_cast<int64_t>(known->size())) return known;
    auto grown = std::make_shared<std::vector<double>>(*known);
    grown->resize(std::bit_ceil(static_cast<uint64_t>(most) + 1));
    for (size_t d = known->size(); d < grown->size(); ++d) {
      (*grown)[d] = LogOfTimes(c_, static_cast<double>(d));
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (logs_->size() < grown->size()) logs_ = std::move(grown);
    return logs_;
  }

 private:
  Logs Kept() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return logs_;
  }

  const double c_;
  mutable std::mutex mutex_;
  mutable Logs logs_ = std::make_shared<std::vector<double>>();
};

class FireEvaluator final : public Evaluator {
 public:
  FireEvaluator(const FireSpec& spec, double scale, DataType type,
                const KernelSet& kernels)
      : hidden_(*spec.hidden_weight, spec.hidden_bias),
        output_(*spec.output_weight, spec.output_bias),
        c_(spec.c),
        threshold_(spec.threshold),
        eps_(spec.eps),
        scale_(scale),
        type_(type),
        kernels_(kernels),
        logs_(spec.c) {}

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override {
    const int64_t query = block.query;
    const double normaliser =
        LogOfTimes(c_, std::max(static_cast<double>(query), threshold_)) + eps_;
    const DistanceLogs::Logs logs =
        logs_.UpTo(std::max(std::abs(block.span.begin - query),
                            std::abs(block.span.end - 1 - query)));
    const auto log_at = [&](int64_t distance) {
      return logs != nullptr ? (*logs)[distance]
                             : LogOfTimes(c_, static_cast<double>(distance));
    };
    std::vector<double> hidden(hidden_.outputs() * kBatch);
    std::vector<double> biases(block.lanes.size() * kBatch);
    for (int64_t key = block.span.begin; key < block.span.end; key += kBatch) {
      const int64_t count = std::min(kBatch, block.span.end - key);
      double in[kBatch] = {};
      for (int64_t n = 0; n < count; ++n) {
        in[n] = log_at(std::abs(query - key - n)) / normaliser;
      }
      hidden_.Apply(in, {0, hidden_.outputs()}, kernels_, hidden.data());
      for (double& each : hidden) each = std::max(each, 0.0);
      output_.Apply(hidden.data(), block.lanes, kernels_, biases.data());
      for (int64_t lane = 0; lane < block.lanes.size(); ++lane) {
        std::byte* to = out + lane * lane_stride_bytes +
                        (key - block.span.begin) * SizeOf(type_);
        for (int64_t n = 0; n < count; ++n) {
          RoundProduct(biases[lane * kBatch + n], scale_, type_, to);
          to += SizeOf(type_);
        }
      }
    }
  }

  int64_t work_per_coordinate() const override {
    return hidden_.products() + output_.products();
  }
  int64_t memory_bytes() const override {
    return hidden_.memory_bytes() + output_.memory_bytes();
  }

 private:
  const Linear hidden_;
  const Linear output_;
  const double c_;
  const double threshold_;
  const double eps_;
  const double scale_;
  const DataType type_;
  const KernelSet& kernels_;
  const DistanceLogs logs_;
};

class FireEncoding final : public Encoding {
 public:
  FireEncoding(const FireSpec& spec, double scale)
      : spec_(spec), scale_(scale) {}

  std::string_view name() const override { return "fire"; }
  Structure structure() const override { return Structure::kDense; }
  int64_t lanes() const override { return spec_.num_heads; }
  int64_t width() const override { return 1; }
  Range domain() const override { return kAllPositions; }

  void WriteIdentity(CanonicalWriter& writer) const override {
    const FireSpec defaults;
    writer.Integer(1, spec_.num_heads);
    writer.Real(2, spec_.c, defaults.c);
    writer.Real(3, spec_.threshold, defaults.threshold);
    writer.Real(4, spec_.eps, defaults.eps);
    int field = 5;
    for (const auto* table : {&spec_.hidden_weight, &spec_.hidden_bias,
                              &spec_.output_weight, &spec_.output_bias}) {
      if (table->has_value()) writer.Bytes(field, (*table)->sha256());
      ++field;
    }
    writer.Real(101, scale_, 1);
  }

  std::unique_ptr<const Evaluator> Prepare(
      DataType type, const KernelSet& kernels) const override {
    return std::make_unique<FireEvaluator>(spec_, scale_, type, kernels);
  }

 private:
  const FireSpec spec_;
  const double scale_;
};

absl::Status CheckIn(absl::string_view field, double value, double least,
                     double most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return Invalid("fire.", field, ": got ", value, ", want a number in [", least,
                 ", ", most, "]");
}

absl::Status CheckTables(const FireSpec& spec) {
  if (!spec.hidden_weight.has_value()) {
    return Invalid(
        "fire.hidden_weight: not set, want a table of [hidden, 1 input]");
  }
  const int64_t hidden = spec.hidden_weight->rows();
  if (hidden > kMaxHidden) {
    return Invalid("fire.hidden_weight: got ", hidden,
                   " hidden units, want at most ", kMaxHidden);
  }
  ATTNBIAS_RETURN_IF_ERROR(CheckShape("fire.hidden_weight", *spec.hidden_weight,
                                      {{hidden, "hidden"}, {1, "input"}}));
  if (!spec.output_weight.has_value()) {
    return Invalid("fire.output_weight: not set, want a table of [",
                   spec.num_heads, " heads, ", hidden, " hidden]");
  }
  ATTNBIAS_RETURN_IF_ERROR(
      CheckShape("fire.output_weight", *spec.output_weight,
                 {{spec.num_heads, "heads"}, {hidden, "hidden"}}));
  if (spec.output_weight->size() > kMaxNetworkNumbers) {
    return Invalid("fire.output_weight: got ", spec.output_weight->size(),
                   " numbers, want at most ", kMaxNetworkNumbers);
  }
  if (spec.hidden_bias.has_value()) {
    ATTNBIAS_RETURN_IF_ERROR(CheckShape("fire.hidden_bias", *spec.hidden_bias,
                                        {{hidden, "hidden"}}));
  }
  if (!spec.output_bias.has_value()) return absl::OkStatus();
  return CheckShape("fire.output_bias", *spec.output_bias,
                    {{spec.num_heads, "heads"}});
}

// No number on the way may overflow.
absl::Status CheckReach(const FireSpec& spec) {
  const auto farthest = static_cast<double>(2 * kMaxPosition);
  const double input =
      LogOfTimes(spec.c, farthest) / LogOfTimes(spec.c, spec.threshold);
  const double hidden = ReachOf(*spec.hidden_weight, spec.hidden_bias, input);
  const double output = ReachOf(*spec.output_weight, spec.output_bias, hidden);
  for (const auto& [field, reach] : {std::pair("hidden_weight", hidden),
                                     std::pair("output_weight", output)}) {
    if (reach < kMostReach) continue;
    return Invalid("fire.", field, ": got numbers that may reach ", reach,
                   ", want less than ", kMostReach);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const FireSpec& spec,
                                         const Output& output) {
  ATTNBIAS_RETURN_IF_ERROR(CheckNumHeads("fire.num_heads", spec.num_heads));
  ATTNBIAS_RETURN_IF_ERROR(CheckIn("c", spec.c, kLeastFactor, kMostFactor));
  ATTNBIAS_RETURN_IF_ERROR(CheckIn("threshold", spec.threshold, kLeastFactor,
                                   static_cast<double>(kMaxPosition)));
  ATTNBIAS_RETURN_IF_ERROR(CheckIn("eps", spec.eps, 0, 1));
  ATTNBIAS_RETURN_IF_ERROR(CheckTables(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckReach(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckBias(output, "fire"));
  ATTNBIAS_RETURN_IF_ERROR(CheckScale(output));
  return std::make_shared<const FireEncoding>(spec, output.scale);
}

}  // namespace attnbias
