// SPDX-License-Identifier: Apache-2.0
// A validated request for positional logits: which vectors its keys use, in
// which type it is computed, how long its rows are.
#ifndef ATTNBIAS_CORE_LOGITS_PLAN_H_
#define ATTNBIAS_CORE_LOGITS_PLAN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "core/encoding/encoding.h"
#include "core/logits/spec.h"
#include "core/tensor/data_type.h"
#include "core/tensor/range.h"

namespace attnbias {

// Keys of one query that use vectors in step: key keys.begin + n uses vector
// `vector` + n * step. A step of 0 is a clipped end, -1 a mirrored half.
struct Stretch {
  Range keys;
  int64_t vector = 0;
  int step = 0;

  int64_t last_vector() const { return vector + (keys.size() - 1) * step; }
};
using Stretches = absl::InlinedVector<Stretch, 4>;

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
  // INVALID_ARGUMENT  a field's value, the message beginning with the field's
  //                   path inside LogitsSpec and ": "
  static absl::StatusOr<LogitsPlanPtr> Make(LogitsSpec spec,
                                            const LogitsLimits& limits);

  // Whether a message may hold these rows in so many bytes of data.
  //
  // INVALID_ARGUMENT  first_row, num_rows or data, which the message names
  absl::Status CheckRows(int64_t first_row, int64_t num_rows,
                         int64_t bytes) const;

  const LogitsSpec& spec() const { return spec_; }
  // Whether rows that are sent to us are attention weights, and those that we
  // answer are sums of vectors.
  bool weighs_values() const { return weighs_values_; }
  // Position of query 0.
  int64_t query_offset() const { return query_offset_; }

  // Numbers of one head in a row that is sent to us, and in its answer.
  int64_t input_width() const { return input_width_; }
  int64_t output_width() const { return output_width_; }
  int64_t output_row_bytes() const {
    return output_width_ * SizeOf(spec_.output_data_type);
  }

  // F32 or F64: what products are formed in.
  DataType work_type() const { return work_type_; }
  // The n of LogitsErrorBound.
  int64_t roundings() const { return roundings_; }
  // What masked elements become, in the output type.
  const std::byte* fill() const { return fill_.data(); }

  // The vectors are numbered from 0. Vector n belongs to key n where positions
  // are absolute. Otherwise it belongs to the relative position (key - query)
  // first() + n, or to that distance where both directions share vectors.
  int64_t num_vectors() const { return num_vectors_; }
  int64_t first() const { return first_; }
  // 1 where all heads share them.
  int64_t vector_heads() const { return vector_heads_; }
  // Only for sinusoids.
  const EncodingPtr& sinusoid() const { return sinusoid_; }

  // Keys that the direction lets query `row`, counted from query 0, see.
  Range VisibleKeys(int64_t row) const;
  // The same keys in order, each in exactly one stretch.
  Stretches StretchesOf(int64_t row) const;

 private:
  explicit LogitsPlan(LogitsSpec spec) : spec_(std::move(spec)) {}

  absl::Status Resolve(const LogitsLimits& limits);
  absl::Status CheckLengths() const;
  absl::Status ResolveFill();
  absl::Status CheckBias() const;
  absl::Status ResolveTerm(std::monostate);
  absl::Status ResolveTerm(const ShawKeysSpec& term);
  absl::Status ResolveTerm(const ShawValuesSpec& term);
  absl::Status ResolveTerm(const SinusoidalDistancesSpec& term);
  absl::Status ResolveTerm(const AbsoluteKeysSpec& term);
  absl::Status ResolveTable(absl::string_view field,
                            const RelativeTableSpec& term);
  absl::Status CheckProjection(absl::string_view field, const Array& projection,
                               int64_t width) const;
  absl::Status CheckVectorBytes(const LogitsLimits& limits) const;
  void ResolveWorkType();
  void CountRoundings();
  // Relative positions between which visible pairs lie, perhaps a little wide.
  Range RelativeHull() const;
  int64_t VectorOf(int64_t relative) const;
  // Appends what `row` sees of `relative`.
  void AppendStretch(int64_t row, Range relative, int step,
                     Stretches* stretches) const;

  LogitsSpec spec_;
  bool weighs_values_ = false;
  bool by_key_ = false;
  bool symmetric_ = false;
  int64_t query_offset_ = 0;
  int64_t input_width_ = 0;
  int64_t output_width_ = 0;
  DataType work_type_ = DataType::kF32;
  int64_t roundings_ = 0;
  // Roundings that projected vectors have had, in F64.
  int64_t projected_width_ = 0;
  std::array<std::byte, 8> fill_{};
  // Relative positions that have a vector of their own. Others use that of the
  // nearest.
  Range distinct_ = {};
  int64_t first_ = 0;
  int64_t num_vectors_ = 0;
  int64_t vector_heads_ = 1;
  EncodingPtr sinusoid_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_LOGITS_PLAN_H_
