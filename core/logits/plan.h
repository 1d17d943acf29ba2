// SPDX-License-Identifier: Apache-2.0
// A validated request for positional logits: the vectors by which queries are multiplied, which of
// these vectors each key uses, the type of the products, and the length of the rows. Each term's
// file registers the function that describes it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attnbias/v1/logits.pb.h"
#include "core/encoding/encoding.h"
#include "core/request/registration.h"
#include "core/request/rules.h"
#include "core/table/table.h"
#include "core/tensor/data_type.h"
#include "core/tensor/positions.h"

namespace attnbias {

// Consecutive keys of one query that use evenly spaced vectors: key keys.begin + n uses vector
// `vector` + n * step. A step of 0 means a clipped end, -1 a mirrored half.
struct KeySegment {
  Range keys;
  int64_t vector = 0;
  int64_t step = 0;

  int64_t last_vector() const { return vector + (keys.size() - 1) * step; }
};
using KeySegments = absl::InlinedVector<KeySegment, 4>;

// Vectors and the keys that use them.
struct TermComponent {
  // Provides the vectors, or their unprojected form, at some of its coordinates.
  EncodingPtr encoding;
  // [heads * head_dim, the encoding's width].
  std::optional<Table> projection = {};
  // Number of vectors per head. Vector n is at coordinate first + n, or first - n if `descends`.
  int64_t count = 0;
  int64_t first = 0;
  bool descends = false;
  // 1 if all heads share the vectors.
  int64_t heads = 1;
  // Maximum number of F64 roundings in any element of the vectors; 0 if the elements come directly
  // from a table.
  int64_t roundings = 0;
  // Returns the segments of a row, counted from query 0: all keys in order, each in exactly one
  // segment. Vectors of keys that the direction hides need not exist.
  std::function<KeySegments(int64_t row)> segments;
  // Field to blame if there are too many vectors.
  absl::string_view sized_by = "query_length";
};

struct LogitsTerm {
  // A logit is the sum of a query's products with one vector of each component.
  std::vector<TermComponent> components;
  // True if received rows are attention weights and results are sums of vectors. There is then one
  // component.
  bool weighs_values = false;
};

// Registers a term for the life of the program:
//
//   const TermRegistration kAbsoluteKeys(
//       v1::LogitsSpec::kAbsoluteKeysFieldNumber, &DescribeAbsoluteKeys);
//
// The function receives the request, which has passed all checks that do not need the term, and the
// position of query 0.
using TermRegistration = Registration<LogitsTerm, v1::LogitsSpec, int64_t>;

// Helpers shared by terms.

// Projects the vectors of `component` if there is a projection, and checks its columns.
absl::Status Project(absl::string_view field, const std::optional<Table>& projection,
                     const v1::LogitsSpec& request, TermComponent* component);

// Returns an encoding whose values at coordinate n are row n of `table`.
absl::StatusOr<EncodingPtr> RowsOf(const Table& table);

// Vectors that keys use according to their relative position, key - query.
struct RelativeVectors {
  // Relative positions that have their own vector. Others use the nearest one's vector.
  Range distinct;
  // Relative position of vector 0 or, if both directions share vectors, its distance.
  int64_t first = 0;
  bool symmetric = false;

  int64_t Nearest(int64_t relative) const {
    return std::clamp(relative, distinct.begin, distinct.end - 1);
  }
  std::function<KeySegments(int64_t row)> For(const v1::LogitsSpec& request,
                                              int64_t query_offset) const;
};

struct LogitsLimits {
  // Maximum total size in bytes of all vectors that a request's keys use.
  int64_t max_vector_bytes = int64_t{1} << 30;
  // Maximum size in bytes of one head's row in the result.
  int64_t max_row_bytes = int64_t{4} << 20;
};

class LogitsPlan;
using LogitsPlanPtr = std::shared_ptr<const LogitsPlan>;

class LogitsPlan {
 public:
  // `spec` must contain only TableRefs that `tables` holds.
  //
  // INVALID_ARGUMENT  a field has an invalid value; the message begins with the field's path
  //                   inside LogitsSpec and ": "
  static absl::StatusOr<LogitsPlanPtr> Make(v1::LogitsSpec spec, const Tables& tables,
                                            const LogitsLimits& limits);

  // Checks that a message may hold these rows in this many bytes of data.
  //
  // INVALID_ARGUMENT  first_row, num_rows or data is invalid; the message names it
  absl::Status CheckRows(int64_t first_row, int64_t num_rows, int64_t bytes) const;

  // The request with its defaults filled in.
  const v1::LogitsSpec& spec() const { return spec_; }
  const LogitsTerm& term() const { return term_; }
  // Position of query 0.
  int64_t query_offset() const { return query_offset_; }

  // Number of elements per head in a received row, and in its result.
  int64_t input_width() const { return input_width_; }
  int64_t output_width() const { return output_width_; }
  int64_t output_row_bytes() const { return output_width_ * SizeOf(output_type()); }

  // Element types of received rows, and of results.
  DataType input_type() const { return static_cast<DataType>(spec_.data_type()); }
  DataType output_type() const { return static_cast<DataType>(spec_.output_data_type()); }
  // Added to every query.
  const std::optional<Table>& query_bias() const { return query_bias_; }

  // Type of products: F32 or F64.
  DataType work_type() const { return work_type_; }
  // The n in the bound in docs/numerics.md: the number of roundings on the longest path from an
  // input to a result, except the one to the output type.
  int64_t roundings() const { return roundings_; }
  // Value of masked elements, in the output type.
  const std::byte* fill() const { return fill_.data(); }

  // Returns the keys that the direction makes visible to query `row`, counted from query 0.
  Range VisibleKeys(int64_t row) const;
  // Returns the same keys in order, each in exactly one segment of the component.
  KeySegments KeySegmentsOf(const TermComponent& component, int64_t row) const;

 private:
  explicit LogitsPlan(v1::LogitsSpec spec) : spec_(std::move(spec)) {}

  absl::Status Resolve(const Tables& tables, const LogitsLimits& limits);
  void CountRoundings();

  v1::LogitsSpec spec_;
  int64_t query_offset_ = 0;
  std::optional<Table> query_bias_;
  LogitsTerm term_;
  int64_t input_width_ = 0;
  int64_t output_width_ = 0;
  DataType work_type_ = DataType::kF32;
  int64_t roundings_ = 0;
  std::array<std::byte, 8> fill_{};
};

}  // namespace attnbias
