// SPDX-License-Identifier: Apache-2.0
// Learned biases: a scalar or a vector for each table row and head. For BUCKETS, the row index
// instead.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "attnbias/v1/encodings.pb.h"
#include "core/encoding/encoding.h"
#include "core/table/table.h"
#include "core/tensor/positions.h"

namespace attnbias {

// A table row, and the end of the consecutive coordinates that read it.
struct RowSpan {
  int64_t row;
  int64_t end;
};

// Passed instead of a width if a row has one scalar per head.
inline constexpr int64_t kBiases = 0;

// Prepares the values in `table`: scalars [rows, heads] ([rows, 1] if all heads share them), or
// vectors [rows, width] or [heads, rows, width]. Without a table, prepares row indices. `span_from`
// returns the row for a coordinate.
EvaluatorPtr PrepareTable(std::optional<Table> table,
                          std::function<RowSpan(int64_t coordinate)> span_from,
                          const NumberFormat& format, int64_t width = kBiases);

// Returns a function for Encoding::write_border that writes the values in these rows of the table.
std::function<void(const NumberFormat& format, Range lanes, std::byte* out)> BorderIn(
    std::optional<Table> table, const std::array<int64_t, 3>& rows);

struct T5BucketRule {
  int64_t num_buckets;
  int64_t max_distance;
  bool bidirectional;
  v1::BucketRule rounding = v1::BUCKET_RULE_EXACT;
};

// Checks that `encoding`'s num_buckets and max_distance, whose ranges have been checked, are
// consistent.
absl::Status CheckBuckets(absl::string_view encoding, const T5BucketRule& rule);

// Returns the sign of (a / m)^s - (b / m)^k, which changes at the boundaries of logarithmic
// buckets. No argument is negative, and m is not 0.
int ComparePowers(int64_t a, int64_t s, int64_t b, int64_t k, int64_t m);

// T5's map from relative positions to buckets (Raffel et al. 2020; the formula is mesh-tensorflow's
// _relative_position_bucket).
//
// With n = |key - query|, B buckets per side, of which m = B / 2 are exact, and D = max_distance:
//
//   bucket(n) = n                                                 for n < m
//   bucket(n) = min(B - 1, m + floor((B - m) ln(n/m) / ln(D/m)))  otherwise
//
// The map is monotone and stored as the distance at which each bucket begins.
class T5Buckets {
 public:
  // `rule` must have passed CheckBuckets.
  explicit T5Buckets(const T5BucketRule& rule);

  // Returns the bucket for a relative position (key - query), and the bucket's end.
  RowSpan SpanFrom(int64_t relative_position) const;

 private:
  int64_t BucketOfDistance(int64_t distance) const;

  const bool bidirectional_;
  // starts_[b]: the smallest distance that falls into bucket b or a later one.
  std::vector<int64_t> starts_;
};

}  // namespace attnbias
