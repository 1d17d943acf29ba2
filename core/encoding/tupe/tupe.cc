// SPDX-License-Identifier: Apache-2.0
// TUPE (Ke et al. 2020): untied absolute and relative position terms, and a class token untied from
// positions.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/types/span.h"
#include "core/base/errors.h"
#include "core/encoding/common/bias_table.h"
#include "core/encoding/common/network.h"
#include "core/encoding/encoding.h"
#include "core/numerics/real.h"
#include "core/numerics/rounding.h"
#include "core/table/table.h"

namespace attnbias {
namespace {

T5BucketRule BucketsOf(const v1::Tupe& spec) {
  return {.num_buckets = spec.num_buckets(),
          .max_distance = spec.max_distance(),
          .bidirectional = true};
}

constexpr int64_t kMaxTupeDim = 4096;

absl::Status CheckPositionTable(const v1::Tupe& spec, const Table& table) {
  const int64_t dim = table.columns();
  const int64_t least = spec.reset_class_token() ? 2 : 1;
  if (dim > kMaxTupeDim || table.rows() < least || table.size() > kMaxNetworkNumbers) {
    return Invalid("tupe.position_table: got ", table.rows(), " rows of ", dim,
                   " columns, want at least ", least, " rows, at most ", kMaxTupeDim,
                   " columns and at most ", kMaxNetworkNumbers, " numbers in total");
  }
  if (spec.num_heads() < 1 || dim % spec.num_heads() != 0) {
    return Invalid("tupe.num_heads: got ", spec.num_heads(),
                   ", want a divisor of position_table's columns, ", dim);
  }
  return absl::OkStatus();
}

double DefaultScale(const v1::Tupe& spec, const Table& positions) {
  Real scale(2 * positions.columns() / spec.num_heads(), std::numeric_limits<double>::digits);
  mpfr_rec_sqrt(scale.get(), scale.get(), MPFR_RNDN);
  return scale.ToDouble();
}

// Rejects num_buckets and max_distance if there is only an absolute term. Their defaults are
// allowed, because Complete sets them even then, and a client may send a resolved spec again.
absl::Status CheckNoBuckets(const v1::Tupe& spec) {
  if (!spec.has_position_table() || spec.has_relative_table()) return absl::OkStatus();
  for (const auto& [field, got, unset] : {std::tuple("num_buckets", spec.num_buckets(), 32),
                                          std::tuple("max_distance", spec.max_distance(), 128)}) {
    if (got == unset) continue;
    return Invalid("tupe.", field, ": got ", got, ", want none without relative_table");
  }
  return absl::OkStatus();
}

// Drops a position_scale that equals its default.
std::shared_ptr<const v1::Tupe> Canonical(const v1::Tupe& spec, const Tables& tables) {
  auto canonical = std::make_shared<v1::Tupe>(spec);
  if (spec.has_position_table() && spec.has_position_scale() &&
      spec.position_scale() == DefaultScale(spec, *tables.Get(spec.position_table()))) {
    canonical->clear_position_scale();
  }
  return canonical;
}

// Returns the number of projection columns whose weights are converted to doubles at a time: about
// 1 MiB of doubles. A large model's whole projection would take more memory than everything else.
int64_t ColumnsAtOnce(int64_t dim) {
  constexpr int64_t kWeights = int64_t{1} << 17;
  return std::clamp<int64_t>(kWeights / dim, 1, dim);
}

// Applies LayerNorm to a row.
void Normalise(absl::Span<const double> weight, absl::Span<const double> bias, double eps,
               double* row) {
  const auto count = static_cast<double>(weight.size());
  const double mean = std::accumulate(row, row + weight.size(), 0.0) / count;
  double squares = 0;
  for (size_t i = 0; i < weight.size(); ++i) {
    row[i] -= mean;
    squares = std::fma(row[i], row[i], squares);
  }
  const double deviation = std::sqrt(squares / count + eps);
  for (size_t i = 0; i < weight.size(); ++i) {
    row[i] = std::fma(row[i] / deviation, weight[i], bias[i]);
  }
}

// TUPE's absolute term: dot products of projected positions, bit-identical on all machines.
//
// The steps, in F64 and in this order, are LayerNorm, which sums sequentially over a row's columns;
// both projections, as Linear computes them; multiplication of queries by the scale; and products
// of query and key, which are added to 0 in the order of a head's columns. Each operation is
// rounded once; a product and its addition are rounded together.
class TupePositions {
 public:
  // Returns the maximum number of bytes that this object needs, including during construction.
  static int64_t BytesOf(const Table& position_table) {
    const int64_t dim = position_table.columns();
    const int64_t columns = ColumnsAtOnce(dim);
    // The positions with their queries and keys, a part of a weight with its bias, and a batch of
    // positions with its projections.
    return (3 * position_table.size() + columns * (dim + 1) + (dim + columns) * kBatch) *
           int64_t{sizeof(double)};
  }

  // `spec` must have an absolute term and a position_scale.
  TupePositions(const v1::Tupe& spec, const Table& position_table, const Tables& tables,
                const KernelSet& kernels)
      : resets_(spec.reset_class_token()),
        rows_(position_table.rows()),
        dim_(position_table.columns()),
        head_dim_(dim_ / spec.num_heads()),
        queries_(rows_ * dim_),
        keys_(dim_ * rows_) {
    std::vector<double> positions = NumbersOf(position_table);
    if (spec.has_norm_weight()) {
      const std::vector<double> weight = NumbersOf(*tables.Get(spec.norm_weight()));
      const std::vector<double> bias = NumbersOf(*tables.Get(spec.norm_bias()));
      for (int64_t row = 0; row < rows_; ++row) {
        Normalise(weight, bias, spec.norm_eps(), &positions[row * dim_]);
      }
    }
    Project(*tables.Get(spec.query_weight()), tables.Get(spec.query_bias()), positions, kernels,
            [&](Range rows, int64_t column, const double* projected) {
              for (int64_t row = rows.begin; row < rows.end; ++row) {
                queries_[row * dim_ + column] = *projected++ * spec.position_scale();
              }
            });
    Project(*tables.Get(spec.key_weight()), tables.Get(spec.key_bias()), positions, kernels,
            [&](Range rows, int64_t column, const double* projected) {
              std::copy_n(projected, rows.size(), &keys_[column * rows_ + rows.begin]);
            });
  }

  // Writes the term for a block's pairs in one head.
  //
  // If a class token is reset, position p is row p + 1. Pairs whose query is the class token get
  // the product of row 0 with itself; pairs whose key is the class token get the product of row 1
  // with itself.
  void Fill(int64_t head, const Block& block, const KernelSet& kernels, double* out) const {
    const int64_t offset = resets_ ? 1 : 0;
    const Range keys = {block.span.begin + offset, block.span.end + offset};
    if (resets_ && block.query == 0) {
      Dot(head, 0, {0, 1}, kernels, out);
      std::fill_n(out + 1, keys.size() - 1, out[0]);
      return;
    }
    Dot(head, block.query + offset, keys, kernels, out);
    if (resets_ && block.span.begin == 0) Dot(head, 1, {1, 2}, kernels, out);
  }

 private:
  // Writes the products of the table's row `query` with the rows `keys`.
  void Dot(int64_t head, int64_t query, Range keys, const KernelSet& kernels, double* out) const {
    const int64_t column = head * head_dim_;
    std::fill_n(out, keys.size(), 0.0);
    kernels.add_products(&queries_[query * dim_ + column],
                         {&keys_[column * rows_ + keys.begin], rows_, head_dim_}, out, keys.size());
  }

  // Calls `write` with each column of the projected `positions` [rows, dim], a batch of rows at a
  // time.
  template <typename Write>
  void Project(const Table& weight, const std::optional<Table>& bias,
               const std::vector<double>& positions, const KernelSet& kernels, Write write) const {
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

  const bool resets_;
  const int64_t rows_;
  const int64_t dim_;
  const int64_t head_dim_;
  std::vector<double> queries_;  // [rows, dim], scaled
  std::vector<double> keys_;     // [dim, rows]
};

// State that an encoding shares with its evaluators.
struct Tupe {
  Tupe(const v1::Tupe& given, const Tables& tables)
      : spec(given),
        tables(tables),
        relative_table(tables.Get(given.relative_table())),
        position_table(tables.Get(given.position_table())),
        buckets(BucketsOf(given)) {
    if (has_absolute() && !spec.has_position_scale()) {
      spec.set_position_scale(DefaultScale(spec, *position_table));
    }
  }

  bool has_absolute() const { return position_table.has_value(); }

  // T5's middle bidirectional bucket never occurs and is therefore free for pairs whose query is
  // the class token. Pairs whose key is the class token use the row after all buckets.
  int64_t FromClassToken() const { return spec.num_buckets() / 2; }
  int64_t ToClassToken() const { return spec.num_buckets(); }

  double RelativeAt(int64_t query, int64_t key, int64_t head) const {
    if (!relative_table.has_value()) return 0;
    int64_t bucket = buckets.SpanFrom(key - query).row;
    if (spec.reset_class_token() && key == 0) bucket = ToClassToken();
    if (spec.reset_class_token() && query == 0) bucket = FromClassToken();
    return relative_table->At(bucket, head);
  }

  v1::Tupe spec;
  const Tables tables;
  const std::optional<Table> relative_table;
  const std::optional<Table> position_table;
  const T5Buckets buckets;
};

void WriteSum(double a, double b, const NumberFormat& format, const ScaledRounding& rounding,
              std::byte* out) {
  const auto [type, scale] = format;
  const DoubleDouble sum = TwoSum(a, b);
  if (scale == 1 || sum.hi == 0) return RoundSum(sum, type, out);
  if (sum.lo == 0) return RoundProduct(sum.hi, scale, type, out);
  const double magnitude = std::fabs(sum.hi);
  const double error = ScaledRounding::kLeastError * magnitude;
  if (magnitude > 0x1p-500 && magnitude < 0x1p500 && rounding.TryRound(sum, error, out)) return;
  // 6000 bits can hold any sum of two F64 numbers times a scale.
  RoundReal((Real(a, 6000) + b) * scale, type, out);
}

// Prepares the sum of both terms for pairs of positions.
EvaluatorPtr PrepareSums(const std::shared_ptr<const Tupe>& tupe, const NumberFormat& format,
                         const KernelSet& kernels) {
  auto positions = std::make_shared<const TupePositions>(tupe->spec, *tupe->position_table,
                                                         tupe->tables, kernels);
  return MakeEvaluator(
      [tupe, positions, format, &kernels, rounding = ScaledRounding(format.scale, format.type)](
          const Block& block, std::byte* out, int64_t lane_stride_bytes) {
        std::vector<double> absolute(block.span.size());
        for (int64_t head = block.lanes.begin; head < block.lanes.end; ++head) {
          positions->Fill(head, block, kernels, absolute.data());
          std::byte* element = out + (head - block.lanes.begin) * lane_stride_bytes;
          for (int64_t key = block.span.begin; key < block.span.end; ++key) {
            const double relative = tupe->RelativeAt(block.query, key, head);
            WriteSum(absolute[key - block.span.begin], relative, format, rounding, element);
            element += SizeOf(format.type);
          }
        }
      });
}

Encoding Describe(const std::shared_ptr<const Tupe>& tupe) {
  if (tupe->has_absolute()) {
    const Table& positions = *tupe->position_table;
    const int64_t class_rows = tupe->spec.reset_class_token() ? 1 : 0;
    return Encoding{.structure = Structure::kDense,
                    .lanes = tupe->spec.num_heads(),
                    .has_heads = true,
                    .domain = {0, positions.rows() - class_rows},
                    // The TupePositions, and one sum per key in a Fill.
                    .evaluator_bytes = TupePositions::BytesOf(positions) +
                                       positions.rows() * int64_t{sizeof(double)},
                    .prepare = [tupe](const NumberFormat& format, const KernelSet& kernels) {
                      return PrepareSums(tupe, format, kernels);
                    }};
  }
  Encoding encoding{.structure = Structure::kToeplitz,
                    .lanes = tupe->spec.num_heads(),
                    .has_heads = true,
                    .domain = kRelativePositions,
                    .has_buckets = true,
                    .prepare = [tupe](const NumberFormat& format, const KernelSet& /*kernels*/) {
                      const auto span_from = [tupe](int64_t at) {
                        return tupe->buckets.SpanFrom(at);
                      };
                      return PrepareTable(tupe->relative_table, span_from, format);
                    }};
  if (tupe->spec.reset_class_token()) {
    encoding.write_border =
        BorderIn(tupe->relative_table,
                 {tupe->FromClassToken(), tupe->ToClassToken(), tupe->FromClassToken()});
  }
  return encoding;
}

absl::StatusOr<Encoding> DescribeTupe(const v1::Tupe& spec, const Tables& tables) {
  ATTNBIAS_RETURN_IF_ERROR(CheckNoBuckets(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckBuckets("tupe", BucketsOf(spec)));
  if (const std::optional<Table> positions = tables.Get(spec.position_table())) {
    ATTNBIAS_RETURN_IF_ERROR(CheckPositionTable(spec, *positions));
  }
  Encoding encoding = Describe(std::make_shared<const Tupe>(spec, tables));
  encoding.canonical = Canonical(spec, tables);
  if (!spec.has_relative_table() && !spec.has_position_table()) {
    encoding.bias_status = Invalid(
        "tupe.relative_table: not set, want relative_table, position_table or values BUCKETS");
  }
  return encoding;
}

const EncodingRegistration kTupe(v1::TensorSpec::kTupeFieldNumber, &DescribeTupe);

}  // namespace
}  // namespace attnbias
