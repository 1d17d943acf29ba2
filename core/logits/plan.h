// SPDX-License-Identifier: Apache-2.0
// A validated request for positional logits: the vectors that its keys use, the type of its
// products, and the length of its rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnbias/v1/logits.pb.h"
#include "core/logits/term.h"
#include "core/request/rules.h"
#include "core/tensor/data_type.h"
#include "core/tensor/positions.h"

namespace attnbias {

struct LogitsLimits {
  // Maximum bytes of all vectors that a request's keys use.
  int64_t max_vector_bytes = int64_t{1} << 30;
  // Maximum bytes of one row of one head in the result.
  int64_t max_row_bytes = int64_t{4} << 20;
};

class LogitsPlan;
using LogitsPlanPtr = std::shared_ptr<const LogitsPlan>;

class LogitsPlan {
 public:
  // `spec` contains only TableRefs that `tables` holds.
  //
  // INVALID_ARGUMENT  a field's value, the message beginning with the field's
  //                   path inside LogitsSpec and ": "
  static absl::StatusOr<LogitsPlanPtr> Make(v1::LogitsSpec spec, const Tables& tables,
                                            const LogitsLimits& limits);

  // Checks that a message may hold these rows in this many bytes of data.
  //
  // INVALID_ARGUMENT  first_row, num_rows or data, which the message names
  absl::Status CheckRows(int64_t first_row, int64_t num_rows, int64_t bytes) const;

  // The request with its defaults.
  const v1::LogitsSpec& spec() const { return spec_; }
  const LogitsTerm& term() const { return term_; }
  // Position of query 0.
  int64_t query_offset() const { return query_offset_; }

  // Numbers of one head in a received row, and in its result.
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
  // The n of the bound in docs/numerics.md: the number of roundings on the longest path from an
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
