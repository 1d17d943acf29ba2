// SPDX-License-Identifier: Apache-2.0
// TUPE (Ke et al. 2020): untied absolute and relative position terms, and a
// class token untied from positions.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/encoding/bias_table.h"
#include "core/encoding/checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/scaled_rounding.h"
#include "core/encoding/t5_buckets.h"
#include "core/encoding/tupe_checks.h"
#include "core/encoding/tupe_positions.h"
#include "core/numerics/real.h"
#include "core/numerics/rounding.h"

namespace attnbias {
namespace {

// What belongs to an encoding and outlives it with its evaluators.
struct Tupe {
  Tupe(const TupeSpec& spec, const Output& output)
      : spec(spec), output(output), buckets(BucketsOf(spec)) {}

  // Of T5's bidirectional buckets the one in the middle never occurs and so is
  // free for a class token's keys; what it is given stands behind them all.
  int64_t FromClassToken() const { return spec.num_buckets / 2; }
  int64_t ToClassToken() const { return spec.num_buckets; }

  // Shared by all who compute with them at one time, and kept by nobody else:
  // plans are remembered, and what they hold counts against no budget.
  std::shared_ptr<const TupePositions> PositionsBy(const KernelSet& kernels) {
    const std::lock_guard<std::mutex> lock(mutex);
    std::shared_ptr<const TupePositions> shared = positions.lock();
    if (shared == nullptr) {
      shared = std::make_shared<const TupePositions>(spec, kernels);
      positions = shared;
    }
    return shared;
  }

  const TupeSpec spec;
  const Output output;
  const T5Buckets buckets;
  std::mutex mutex;
  std::weak_ptr<const TupePositions> positions;  // guarded by mutex
};

// Both terms, which only pairs of positions have.
class DenseEvaluator final : public Evaluator {
 public:
  DenseEvaluator(const std::shared_ptr<Tupe>& tupe, DataType type,
                 const KernelSet& kernels)
      : tupe_(tupe),
        positions_(tupe->PositionsBy(kernels)),
        type_(type),
        rounding_(tupe->output.scale, type),
        kernels_(kernels) {}

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override {
    std::vector<double> absolute(block.span.size());
    for (int64_t lane = block.lanes.begin; lane < block.lanes.end; ++lane) {
      FillAbsolute(lane, block, absolute);
      std::byte* element = out + (lane - block.lanes.begin) * lane_stride_bytes;
      for (int64_t key = block.span.begin; key < block.span.end; ++key) {
        WriteSum(absolute[key - block.span.begin],
                 RelativeAt(block.query, key, lane), element);
        element += SizeOf(type_);
      }
    }
  }

  // What is shared counts once, with whoever made it.
  int64_t memory_bytes() const override {
    return positions_.use_count() == 1 ? positions_->memory_bytes() : 0;
  }

 private:
  bool resets() const { return tupe_->spec.reset_class_token; }

  // With a class token to reset, position p is row p + 1, and the products of
  // rows 0 and 1 with themselves are what it gives and what it gets.
  void FillAbsolute(int64_t head, const Block& block,
                    std::vector<double>& out) const {
    const int64_t offset = resets() ? 1 : 0;
    const Range keys = {block.span.begin + offset, block.span.end + offset};
    if (resets() && block.query == 0) {
      positions_->Dot(head, 0, {0, 1}, kernels_, out.data());
      std::fill(out.begin() + 1, out.end(), out[0]);
      return;
    }
    positions_->Dot(head, block.query + offset, keys, kernels_, out.data());
    if (resets() && block.span.begin == 0) {
      positions_->Dot(head, 1, {1, 2}, kernels_, out.data());
    }
  }

  double RelativeAt(int64_t query, int64_t key, int64_t head) const {
    const std::optional<Table>& table = tupe_->spec.relative_table;
    return table.has_value() ? table->At(BucketOf(query, key), head) : 0;
  }

  int64_t BucketOf(int64_t query, int64_t key) const {
    if (resets() && query == 0) return tupe_->FromClassToken();
    if (resets() && key == 0) return tupe_->ToClassToken();
    return tupe_->buckets.RunFrom(key - query).bucket;
  }

  // Writes scale (a + b).
  void WriteSum(double a, double b, std::byte* out) const {
    const double scale = tupe_->output.scale;
    const DoubleDouble sum = TwoSum(a, b);
    if (scale == 1 || sum.hi == 0) return RoundSum(sum, type_, out);
    if (sum.lo == 0) return RoundProduct(sum.hi, scale, type_, out);
    const double magnitude = std::fabs(sum.hi);
    const double error = ScaledRounding::kLeastError * magnitude;
    if (magnitude > 0x1p-500 && magnitude < 0x1p500 &&
        rounding_.TryRound(sum, error, out)) {
      return;
    }
    // Room for every bit of a product of sums of F64 numbers.
    Real value(6000);
    mpfr_set_d(value.get(), a, MPFR_RNDN);
    mpfr_add_d(value.get(), value.get(), b, MPFR_RNDN);
    mpfr_mul_d(value.get(), value.get(), scale, MPFR_RNDN);
    RoundReal(value, type_, out);
  }

  const std::shared_ptr<const Tupe> tupe_;
  const std::shared_ptr<const TupePositions> positions_;
  const DataType type_;
  const ScaledRounding rounding_;
  const KernelSet& kernels_;
};

double DefaultScale(const TupeSpec& spec) {
  Real scale(std::numeric_limits<double>::digits);
  mpfr_set_si(scale.get(), 2 * spec.position_table->columns() / spec.num_heads,
              MPFR_RNDN);
  mpfr_rec_sqrt(scale.get(), scale.get(), MPFR_RNDN);
  return mpfr_get_d(scale.get(), MPFR_RNDN);
}

class TupeEncoding final : public Encoding {
 public:
  // `spec` has its position_scale where it has positions.
  TupeEncoding(const TupeSpec& spec, const Output& output)
      : tupe_(std::make_shared<Tupe>(spec, output)) {}

  std::string_view name() const override { return "tupe"; }
  Structure structure() const override {
    return has_positions() ? Structure::kDense : Structure::kToeplitz;
  }
  int64_t lanes() const override {
    return has_indices() ? 1 : spec().num_heads;
  }
  int64_t width() const override { return 1; }
  Range domain() const override {
    if (!has_positions()) return kRelativePositions;
    return {0,
            spec().position_table->rows() - (spec().reset_class_token ? 1 : 0)};
  }
  bool has_indices() const override {
    return tupe_->output.values == Values::kBuckets;
  }
  bool has_border() const override {
    return spec().reset_class_token && !has_positions();
  }
  void WriteBorder(DataType type, Range lanes, std::byte* out) const override {
    for (int64_t lane = lanes.begin; lane < lanes.end; ++lane) {
      for (const int64_t bucket :
           {tupe_->FromClassToken(), tupe_->ToClassToken(),
            tupe_->FromClassToken()}) {
        Biases().Write(bucket, lane, type, out);
        out += SizeOf(type);
      }
    }
  }

  void WriteIdentity(CanonicalWriter& writer) const override {
    const TupeSpec defaults;
    const auto write_table = [&](int field, const std::optional<Table>& table) {
      if (table.has_value()) writer.Bytes(field, table->sha256());
    };
    const bool has_buckets = has_indices() || spec().relative_table.has_value();
    if (!has_indices()) {
      writer.Integer(1, spec().num_heads);
      write_table(2, spec().relative_table);
    }
    if (has_buckets) {
      writer.Integer(3, spec().num_buckets, defaults.num_buckets);
      writer.Integer(4, spec().max_distance, defaults.max_distance);
    }
    if (has_positions()) {
      write_table(5, spec().position_table);
      write_table(6, spec().query_weight);
      write_table(7, spec().query_bias);
      write_table(8, spec().key_weight);
      write_table(9, spec().key_bias);
      write_table(10, spec().norm_weight);
      write_table(11, spec().norm_bias);
      if (spec().norm_weight.has_value()) {
        writer.Real(12, spec().norm_eps, defaults.norm_eps);
      }
    }
    writer.Integer(13, spec().reset_class_token ? 1 : 0);
    if (has_positions()) {
      writer.Real(14, *spec().position_scale, DefaultScale(spec()));
    }
    WriteValues(has_indices(), writer);
    writer.Real(101, tupe_->output.scale, 1);
  }

  std::unique_ptr<const Evaluator> Prepare(
      DataType type, const KernelSet& kernels) const override {
    if (!has_positions()) {
      return std::make_unique<BiasTableEvaluator>(
          Biases(),
          [tupe = tupe_](int64_t at) {
            const T5Buckets::Run run = tupe->buckets.RunFrom(at);
            return RowRun{run.bucket, run.end};
          },
          type);
    }
    return std::make_unique<DenseEvaluator>(tupe_, type, kernels);
  }

 private:
  const TupeSpec& spec() const { return tupe_->spec; }
  bool has_positions() const { return spec().position_table.has_value(); }
  BiasTable Biases() const {
    return {spec().relative_table, tupe_->output.scale};
  }

  const std::shared_ptr<Tupe> tupe_;
};

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const TupeSpec& spec,
                                         const Output& output) {
  ATTNBIAS_RETURN_IF_ERROR(CheckTupe(spec, output));
  TupeSpec resolved = spec;
  if (spec.position_table.has_value()) {
    resolved.position_scale = spec.position_scale.value_or(DefaultScale(spec));
  }
  return std::make_shared<const TupeEncoding>(resolved, output);
}

}  // namespace attnbias
