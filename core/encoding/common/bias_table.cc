// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/common/bias_table.h"

#include <gmpxx.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "core/base/errors.h"
#include "core/numerics/double_double.h"
#include "core/numerics/rounding.h"
#include "core/tensor/data_type.h"

namespace attnbias {
namespace {

// Writes the values of a row for one head, or the row's index if the type is I32.
void WriteRow(const std::optional<Table>& table, int64_t width, int64_t row, int64_t head,
              const NumberFormat& format, std::byte* out) {
  if (format.type == DataType::kI32) {
    const auto index = static_cast<int32_t>(row);
    std::memcpy(out, &index, sizeof(index));
    return;
  }
  if (width == kBiases) {
    const int64_t column = table->columns() == 1 ? 0 : head;
    return RoundProduct(table->At(row, column), format.scale, format.type, out);
  }
  const bool per_head = table->shape().size() == 3;
  for (int64_t column = 0; column < width; ++column) {
    const double number = per_head ? table->At(head, row * width + column) : table->At(row, column);
    RoundProduct(number, format.scale, format.type, out);
    out += SizeOf(format.type);
  }
}

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// The logarithmic half of one side's buckets.
struct LogRule {
  int64_t num_exact;
  int64_t num_log;
  int64_t max_distance;
};

// Returns the smallest n with num_log ln(n/m) / ln(D/m) >= k.
int64_t ExactStart(const LogRule& rule, int64_t k) {
  const int64_t divisor = std::gcd(rule.num_log, k);
  const int64_t s = rule.num_log / divisor;
  k /= divisor;
  const auto reaches = [&](int64_t n) {
    return ComparePowers(n, s, rule.max_distance, k, rule.num_exact) >= 0;
  };
  const double m = static_cast<double>(rule.num_exact);
  const double ratio = static_cast<double>(rule.max_distance) / m;
  auto n = static_cast<int64_t>(
      m * std::exp(std::log(ratio) * static_cast<double>(k) / static_cast<double>(s)));
  while (n > 1 && reaches(n - 1)) --n;
  while (!reaches(n)) ++n;
  return n;
}

// Returns the smallest n for which the float32 expression, as torch evaluates it, reaches k.
int64_t Float32Start(const LogRule& rule, int64_t k) {
  const auto m = static_cast<float>(rule.num_exact);
  const auto log_ratio = static_cast<float>(
      std::log(static_cast<double>(rule.max_distance) / static_cast<double>(rule.num_exact)));
  const auto reaches = [&](int64_t n) {
    const float log_n = RoundedLog(static_cast<float>(n) / m);
    return log_n / log_ratio * static_cast<float>(rule.num_log) >= static_cast<float>(k);
  };
  int64_t below = rule.num_exact - 1;
  // Exceeds max_distance by more than a float32's relative error.
  int64_t above = rule.max_distance + rule.max_distance / 1024 + 1;
  if (!reaches(above)) return kNever;
  while (above - below > 1) {
    const int64_t middle = below + (above - below) / 2;
    (reaches(middle) ? above : below) = middle;
  }
  return above;
}

}  // namespace

EvaluatorPtr PrepareTable(std::optional<Table> table,
                          std::function<RowSpan(int64_t coordinate)> span_from,
                          const NumberFormat& format, int64_t width) {
  if (format.type == DataType::kI32) width = kBiases;
  const int64_t row_bytes = std::max<int64_t>(width, 1) * SizeOf(format.type);
  return MakeEvaluator([table = std::move(table), span_from = std::move(span_from), format, width,
                        row_bytes](const Block& block, std::byte* out, int64_t lane_stride_bytes) {
    for (int64_t at = block.span.begin; at < block.span.end;) {
      const RowSpan span = span_from(at);
      const int64_t end = std::min(span.end, block.span.end);
      std::byte* to = out + (at - block.span.begin) * row_bytes;
      for (int64_t lane = block.lanes.begin; lane < block.lanes.end; ++lane) {
        WriteRow(table, width, span.row, lane, format, to);
        Repeat(to, row_bytes, end - at, to);
        to += lane_stride_bytes;
      }
      at = end;
    }
  });
}

std::function<void(const NumberFormat& format, Range lanes, std::byte* out)> BorderIn(
    std::optional<Table> table, const std::array<int64_t, 3>& rows) {
  return [table = std::move(table), rows](const NumberFormat& format, Range lanes, std::byte* out) {
    for (int64_t lane = lanes.begin; lane < lanes.end; ++lane) {
      for (const int64_t row : rows) {
        WriteRow(table, kBiases, row, lane, format, out);
        out += SizeOf(format.type);
      }
    }
  };
}

int ComparePowers(int64_t a, int64_t s, int64_t b, int64_t k, int64_t m) {
  mpz_class left;
  mpz_class right;
  mpz_class factor;
  mpz_ui_pow_ui(left.get_mpz_t(), a, s);
  mpz_ui_pow_ui(right.get_mpz_t(), b, k);
  mpz_ui_pow_ui(factor.get_mpz_t(), m, std::abs(s - k));
  // Both sides are multiplied by m^max(s, k).
  (s > k ? right : left) *= factor;
  return cmp(left, right);
}

absl::Status CheckBuckets(absl::string_view encoding, const T5BucketRule& rule) {
  const int64_t sides = rule.bidirectional ? 2 : 1;
  if (rule.num_buckets < 2 * sides || rule.num_buckets % sides != 0) {
    return Invalid(encoding, ".num_buckets: got ", rule.num_buckets,
                   ", want an even number, at least 4, when bidirectional");
  }
  const int64_t num_exact = rule.num_buckets / sides / 2;
  if (rule.max_distance > num_exact) return absl::OkStatus();
  return Invalid(encoding, ".max_distance: got ", rule.max_distance, ", want more than the ",
                 num_exact, " exact buckets per side");
}

T5Buckets::T5Buckets(const T5BucketRule& rule) : bidirectional_(rule.bidirectional) {
  const int64_t per_side = rule.num_buckets / (bidirectional_ ? 2 : 1);
  const LogRule log_rule{.num_exact = per_side / 2,
                         .num_log = per_side - per_side / 2,
                         .max_distance = rule.max_distance};
  for (int64_t b = 0; b <= log_rule.num_exact; ++b) starts_.push_back(b);
  for (int64_t k = 1; k < log_rule.num_log; ++k) {
    starts_.push_back(rule.rounding == v1::BUCKET_RULE_EXACT ? ExactStart(log_rule, k)
                                                             : Float32Start(log_rule, k));
  }
}

int64_t T5Buckets::BucketOfDistance(int64_t distance) const {
  return std::upper_bound(starts_.begin(), starts_.end(), distance) - starts_.begin() - 1;
}

RowSpan T5Buckets::SpanFrom(int64_t relative_position) const {
  const auto per_side = static_cast<int64_t>(starts_.size());
  if (relative_position <= 0) {
    const int64_t bucket = BucketOfDistance(-relative_position);
    return {.row = bucket, .end = 1 - starts_[bucket]};
  }
  if (!bidirectional_) return {.row = 0, .end = kNever};
  const int64_t bucket = BucketOfDistance(relative_position);
  return {.row = per_side + bucket, .end = bucket + 1 < per_side ? starts_[bucket + 1] : kNever};
}

}  // namespace attnbias
