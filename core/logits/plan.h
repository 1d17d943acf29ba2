// SPDX-License-Identifier: Apache-2.0
// A validated request for positional logits: which vectors its keys use, in
// which type it is computed, how long its rows are.
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
#include "core/request/tables.h"
#include "core/tensor/data_type.h"
#include "core/tensor/range.h"

namespace attnbias {

struct LogitsLimits {
  // Of all vectors that a request's keys use.
  int64_t max_vector_bytes = int64_t{1} << 30;
  // Of one row of one head in the answer.
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
  static absl::StatusOr<LogitsPlanPtr> Make(v1::LogitsSpec spec,
                                            const Tables& tables,
                                            const LogitsLimits& limits);

  // Whether a message may hold these rows in so many bytes of data.
  //
  // INVALID_ARGUMENT  first_row, num_rows or data, which the message names
  absl::Status CheckRows(int64_t first_row, int64_t num_rows,
                         int64_t bytes) const;

  // As it was asked for, its defaults filled in.
  const v1::LogitsSpec& spec() const { return spec_; }
  const LogitsTerm& term() const { return term_; }
  // Position of query 0.
  int64_t query_offset() const { return query_offset_; }

  // Numbers of one head in a row that is sent to us, and in its answer.
  int64_t input_width() const { return input_width_; }
  int64_t output_width() const { return output_width_; }
  int64_t output_row_bytes() const {
    return output_width_ * SizeOf(output_type());
  }

  // Element types of the rows that are sent to us, and of answers.
  DataType input_type() const {
    return static_cast<DataType>(spec_.data_type());
  }
  DataType output_type() const {
    return static_cast<DataType>(spec_.output_data_type());
  }
  // Added to every query.
  const std::optional<Table>& query_bias() const { return query_bias_; }

  // F32 or F64: what products are formed in.
  DataType work_type() const { return work_type_; }
  // The n of the bound in docs/numerics.md: the roundings on the longest way
  // from an input to a result, without the one to the output type.
  int64_t roundings() const { return roundings_; }
  // What masked elements become, in the output type.
  const std::byte* fill() const { return fill_.data(); }

  // Keys that the direction lets query `row`, counted from query 0, see.
  Range VisibleKeys(int64_t row) const;
  // The same keys in order, each in exactly one stretch of the summand.
  Stretches StretchesOf(const Summand& summand, int64_t row) const;

 private:
  explicit LogitsPlan(v1::LogitsSpec spec) : spec_(std::move(spec)) {}

  absl::Status Resolve(const Tables& tables, const LogitsLimits& limits);
  absl::Status ResolveFill();
  absl::Status CheckBias() const;
  absl::Status CheckVectorBytes(const LogitsLimits& limits) const;
  absl::Status ResolveWorkType(const Tables& tables);
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
