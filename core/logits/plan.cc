// SPDX-License-Identifier: Apache-2.0
#include "core/logits/plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "core/encoding/common/pair_checks.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/spec/limits.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

constexpr int64_t kMaxHeadDim = 65536;
// Numbers of all heads at one position: what a BLAS counts in 31 bits.
constexpr int64_t kMaxWidth = int64_t{1} << 24;

absl::Status CheckType(absl::string_view field, DataType type) {
  if (type != DataType::kI32) return absl::OkStatus();
  return Invalid(field, ": got I32, want F64, F32, F16 or BF16");
}

absl::Status WrongShape(absl::string_view field, const Array& array,
                        absl::string_view wanted) {
  return Invalid(field, ": got shape [", absl::StrJoin(array.shape, ", "),
                 "], want ", wanted);
}

bool HasShape(const Array& array, std::initializer_list<int64_t> shape) {
  return std::equal(array.shape.begin(), array.shape.end(), shape.begin(),
                    shape.end());
}

absl::Status NotSet(absl::string_view field) {
  return Invalid(field, ": not set, want a table");
}

bool IsF64(const std::optional<Array>& array) {
  return array.has_value() && array->data_type == DataType::kF64;
}

struct HasF64Table {
  bool operator()(std::monostate) const { return false; }
  bool operator()(const RelativeTableSpec& term) const {
    return IsF64(term.table);
  }
  bool operator()(const SinusoidalDistancesSpec& term) const {
    return IsF64(term.projection);
  }
  bool operator()(const AbsoluteKeysSpec& term) const {
    return IsF64(term.positions) || IsF64(term.projection);
  }
};

}  // namespace

absl::StatusOr<LogitsPlanPtr> LogitsPlan::Make(LogitsSpec spec,
                                               const LogitsLimits& limits) {
  std::shared_ptr<LogitsPlan> plan(new LogitsPlan(std::move(spec)));
  ATTNBIAS_RETURN_IF_ERROR(plan->Resolve(limits));
  return plan;
}

absl::Status LogitsPlan::Resolve(const LogitsLimits& limits) {
  ATTNBIAS_RETURN_IF_ERROR(CheckType("data_type", spec_.data_type));
  ATTNBIAS_RETURN_IF_ERROR(
      CheckType("output_data_type", spec_.output_data_type));
  ATTNBIAS_RETURN_IF_ERROR(CheckLengths());
  ATTNBIAS_ASSIGN_OR_RETURN(
      query_offset_, QueryOffsetOf("", spec_.query_length, spec_.key_length,
                                   spec_.alignment, spec_.query_offset));
  if (!spec_.direction.has_value()) {
    return Invalid(
        "direction: not set, want LEFT_TO_RIGHT, RIGHT_TO_LEFT or "
        "BIDIRECTIONAL");
  }
  if (!std::isfinite(spec_.scale) || spec_.scale == 0) {
    return Invalid("scale: got ", spec_.scale,
                   ", want a finite number other than 0");
  }
  input_width_ = spec_.bias_alone ? 0 : spec_.head_dim;
  output_width_ = spec_.key_length;
  ResolveWorkType();
  ATTNBIAS_RETURN_IF_ERROR(std::visit(
      [this](const auto& term) { return ResolveTerm(term); }, spec_.term));
  ATTNBIAS_RETURN_IF_ERROR(ResolveFill());
  ATTNBIAS_RETURN_IF_ERROR(CheckBias());
  ATTNBIAS_RETURN_IF_ERROR(CheckVectorBytes(limits));
  const int64_t most = limits.max_row_bytes / SizeOf(spec_.output_data_type);
  if (output_width_ > most) {
    return Invalid("key_length: got ", output_width_, ", want at most ", most,
                   ", since a row of one head must fit a message");
  }
  CountRoundings();
  return absl::OkStatus();
}

absl::Status LogitsPlan::CheckLengths() const {
  if (spec_.num_heads < 1 || spec_.num_heads > kMaxNumHeads) {
    return Invalid("num_heads: got ", spec_.num_heads,
                   ", want an integer in [1, ", kMaxNumHeads, "]");
  }
  if (spec_.head_dim < 1 || spec_.head_dim > kMaxHeadDim) {
    return Invalid("head_dim: got ", spec_.head_dim,
                   ", want an integer in [1, ", kMaxHeadDim, "]");
  }
  if (spec_.num_heads * spec_.head_dim > kMaxWidth) {
    return Invalid("head_dim: got ", spec_.head_dim, " for ", spec_.num_heads,
                   " heads, want a product of at most ", kMaxWidth);
  }
  ATTNBIAS_RETURN_IF_ERROR(CheckLength("query_length", spec_.query_length));
  return CheckLength("key_length", spec_.key_length);
}

absl::Status LogitsPlan::ResolveFill() {
  if (weighs_values_ && !std::holds_alternative<std::monostate>(spec_.fill)) {
    return Invalid(
        "fill: got one, want none: sums over keys have no element "
        "of their own for a masked key");
  }
  return RoundFill("fill_value", spec_.fill, spec_.output_data_type,
                   fill_.data());
}

absl::Status LogitsPlan::CheckBias() const {
  if (!spec_.query_bias.has_value()) {
    if (!spec_.bias_alone) return absl::OkStatus();
    return Invalid("bias_alone: got true without a query_bias, want both");
  }
  if (weighs_values_) {
    return Invalid("query_bias: got one, want none: shaw_values has no query");
  }
  if (HasShape(*spec_.query_bias, {spec_.num_heads, spec_.head_dim})) {
    return absl::OkStatus();
  }
  return WrongShape("query_bias", *spec_.query_bias,
                    absl::StrCat("[num_heads, head_dim] = [", spec_.num_heads,
                                 ", ", spec_.head_dim, "]"));
}

absl::Status LogitsPlan::ResolveTerm(std::monostate) {
  return Invalid(
      "term: not set, want one of shaw_keys, shaw_values, "
      "sinusoidal_distances, absolute_keys");
}

absl::Status LogitsPlan::ResolveTerm(const ShawKeysSpec& term) {
  return ResolveTable("shaw_keys", term);
}

absl::Status LogitsPlan::ResolveTerm(const ShawValuesSpec& term) {
  weighs_values_ = true;
  input_width_ = spec_.key_length;
  output_width_ = spec_.head_dim;
  return ResolveTable("shaw_values", term);
}

absl::Status LogitsPlan::ResolveTable(absl::string_view field,
                                      const RelativeTableSpec& term) {
  for (const auto& [name, clip] :
       {std::pair("left", term.left), std::pair("right", term.right)}) {
    if (!clip.has_value()) {
      return Invalid(field, ".", name, ": not set, want a distance");
    }
    if (*clip < 0 || *clip > kMaxPosition) {
      return Invalid(field, ".", name, ": got ", *clip,
                     ", want an integer in [0, 2^40]");
    }
  }
  if (!term.table.has_value()) return NotSet(absl::StrCat(field, ".table"));
  num_vectors_ = *term.left + *term.right + 1;
  first_ = -*term.left;
  distinct_ = {first_, first_ + num_vectors_};
  if (HasShape(*term.table, {num_vectors_, spec_.head_dim})) {
    return absl::OkStatus();
  }
  vector_heads_ = spec_.num_heads;
  if (HasShape(*term.table, {vector_heads_, num_vectors_, spec_.head_dim})) {
    return absl::OkStatus();
  }
  return WrongShape(
      absl::StrCat(field, ".table"), *term.table,
      absl::StrCat("[left + right + 1, head_dim] = [", num_vectors_, ", ",
                   spec_.head_dim, "], or the same for each of ",
                   spec_.num_heads, " heads"));
}

absl::Status LogitsPlan::ResolveTerm(const SinusoidalDistancesSpec& term) {
  absl::StatusOr<EncodingPtr> sinusoid =
      MakeEncoding(term.sinusoidal, Output());
  if (!sinusoid.ok()) {
    return Invalid("sinusoidal_distances.", sinusoid.status().message());
  }
  sinusoid_ = *std::move(sinusoid);
  const int64_t width = sinusoid_->width;
  if (term.projection.has_value()) {
    ATTNBIAS_RETURN_IF_ERROR(CheckProjection("sinusoidal_distances.projection",
                                             *term.projection, width));
    vector_heads_ = spec_.num_heads;
  } else if (width != spec_.head_dim) {
    return Invalid("sinusoidal_distances.sinusoidal.dim: got ", width,
                   ", want head_dim (", spec_.head_dim,
                   ") where there is no projection");
  }
  projected_width_ = width;
  distinct_ = kRelativePositions;
  if (term.clamp_len.has_value()) {
    if (*term.clamp_len < 1 || *term.clamp_len > kMaxPosition) {
      return Invalid("sinusoidal_distances.clamp_len: got ", *term.clamp_len,
                     ", want an integer in [1, 2^40]");
    }
    distinct_ = {-*term.clamp_len, *term.clamp_len + 1};
  }
  symmetric_ = term.symmetric;
  const Range hull = RelativeHull();
  if (hull.size() <= 0) return absl::OkStatus();
  const int64_t low =
      std::clamp(hull.begin, distinct_.begin, distinct_.end - 1);
  const int64_t high =
      std::clamp(hull.end - 1, distinct_.begin, distinct_.end - 1);
  if (std::max(std::abs(low), std::abs(high)) > kMaxPosition) {
    return Invalid("query_offset: got ", query_offset_,
                   ", which makes distances of more than 2^40; want smaller "
                   "ones, or a clamp_len");
  }
  first_ = low;
  num_vectors_ = high - low + 1;
  if (symmetric_) {
    const bool both = low <= 0 && high >= 0;
    first_ = both ? 0 : std::min(std::abs(low), std::abs(high));
    num_vectors_ = std::max(std::abs(low), std::abs(high)) - first_ + 1;
  }
  return absl::OkStatus();
}

absl::Status LogitsPlan::ResolveTerm(const AbsoluteKeysSpec& term) {
  if (!term.positions.has_value()) return NotSet("absolute_keys.positions");
  const Array& table = *term.positions;
  by_key_ = true;
  num_vectors_ = spec_.key_length;
  const size_t rank = table.shape.size();
  const bool fits = (rank == 2 || (rank == 3 && !term.projection.has_value() &&
                                   table.shape[0] == spec_.num_heads)) &&
                    table.shape[rank - 2] >= spec_.key_length;
  if (!fits) {
    return WrongShape("absolute_keys.positions", table,
                      absl::StrCat("at least key_length (", spec_.key_length,
                                   ") rows, with no projection perhaps for "
                                   "each of ",
                                   spec_.num_heads, " heads"));
  }
  if (rank == 3) vector_heads_ = spec_.num_heads;
  if (term.projection.has_value()) {
    projected_width_ = table.shape[1];
    vector_heads_ = spec_.num_heads;
    return CheckProjection("absolute_keys.projection", *term.projection,
                           projected_width_);
  }
  if (table.shape[rank - 1] == spec_.head_dim) return absl::OkStatus();
  return WrongShape("absolute_keys.positions", table,
                    absl::StrCat("rows of head_dim (", spec_.head_dim,
                                 ") where there is no projection"));
}

absl::Status LogitsPlan::CheckProjection(absl::string_view field,
                                         const Array& projection,
                                         int64_t width) const {
  const int64_t rows = spec_.num_heads * spec_.head_dim;
  if (HasShape(projection, {rows, width})) return absl::OkStatus();
  return WrongShape(
      field, projection,
      absl::StrCat("[num_heads * head_dim, dim] = [", rows, ", ", width, "]"));
}

absl::Status LogitsPlan::CheckRows(int64_t first_row, int64_t num_rows,
                                   int64_t bytes) const {
  if (first_row < 0 || first_row >= spec_.query_length) {
    return Invalid("first_row: got ", first_row, ", want an integer in [0, ",
                   spec_.query_length, "), query_length being its end");
  }
  if (num_rows < 1 || num_rows > spec_.query_length - first_row) {
    return Invalid("num_rows: got ", num_rows, ", want an integer in [1, ",
                   spec_.query_length - first_row, "], since ", first_row,
                   " of ", spec_.query_length, " rows come before them");
  }
  int64_t wanted = SizeOf(spec_.data_type);
  const bool fits = !__builtin_mul_overflow(wanted, spec_.num_heads, &wanted) &&
                    !__builtin_mul_overflow(wanted, num_rows, &wanted) &&
                    !__builtin_mul_overflow(wanted, input_width_, &wanted);
  if (fits && bytes == wanted) return absl::OkStatus();
  return Invalid("data: got ", bytes, " bytes, want ",
                 fits ? absl::StrCat(wanted) : "more than 2^63", " for shape [",
                 spec_.num_heads, ", ", num_rows, ", ", input_width_, "] of ",
                 std::string(NameOf(spec_.data_type)));
}

absl::Status LogitsPlan::CheckVectorBytes(const LogitsLimits& limits) const {
  const int64_t columns = vector_heads_ * spec_.head_dim;
  const int64_t most = limits.max_vector_bytes / columns / SizeOf(work_type_);
  if (num_vectors_ <= most) return absl::OkStatus();
  return Invalid(by_key_ ? "key_length" : "query_length",
                 ": queries and keys meet at ", num_vectors_,
                 " distances or positions, want at most ", most,
                 ", whose vectors this server can hold; want shorter lengths",
                 by_key_ ? "" : " or a clamp_len");
}

void LogitsPlan::ResolveWorkType() {
  const bool doubles = spec_.data_type == DataType::kF64 ||
                       spec_.output_data_type == DataType::kF64 ||
                       IsF64(spec_.query_bias) ||
                       std::visit(HasF64Table(), spec_.term);
  work_type_ = doubles ? DataType::kF64 : DataType::kF32;
}

void LogitsPlan::CountRoundings() {
  const bool doubles = work_type_ == DataType::kF64;
  if (weighs_values_) {
    // Weights of keys that share a clipped end are added first, in F64.
    roundings_ = std::min(spec_.key_length, num_vectors_) +
                 (doubles ? spec_.key_length + 1 : 2);
  } else {
    // Projections are computed in F64.
    roundings_ = spec_.head_dim + (spec_.query_bias.has_value() ? 1 : 0);
    if (projected_width_ != 0)
      roundings_ += 2 + (doubles ? projected_width_ : 0);
  }
  if (spec_.scale != 1) ++roundings_;
}

Range LogitsPlan::RelativeHull() const {
  Range hull = {-(query_offset_ + spec_.query_length - 1),
                spec_.key_length - query_offset_};
  if (spec_.direction == Direction::kLeftToRight) {
    hull.end = std::min<int64_t>(hull.end, 1);
  } else if (spec_.direction == Direction::kRightToLeft) {
    hull.begin = std::max<int64_t>(hull.begin, 0);
  }
  return hull;
}

Range LogitsPlan::VisibleKeys(int64_t row) const {
  const int64_t position = row + query_offset_;
  Range keys = {0, spec_.key_length};
  if (spec_.direction == Direction::kLeftToRight) {
    keys.end = std::clamp<int64_t>(position + 1, 0, keys.end);
  } else if (spec_.direction == Direction::kRightToLeft) {
    keys.begin = std::clamp<int64_t>(position, 0, keys.end);
  }
  return keys;
}

int64_t LogitsPlan::VectorOf(int64_t relative) const {
  const int64_t clipped =
      std::clamp(relative, distinct_.begin, distinct_.end - 1);
  return (symmetric_ ? std::abs(clipped) : clipped) - first_;
}

void LogitsPlan::AppendStretch(int64_t row, Range relative, int step,
                               Stretches* stretches) const {
  const int64_t position = row + query_offset_;
  const Range visible = VisibleKeys(row);
  const Range keys = {std::max(visible.begin, relative.begin + position),
                      std::min(visible.end, relative.end + position)};
  if (keys.size() <= 0) return;
  stretches->push_back({keys, VectorOf(keys.begin - position), step});
}

Stretches LogitsPlan::StretchesOf(int64_t row) const {
  Stretches stretches;
  if (by_key_) {
    const Range visible = VisibleKeys(row);
    if (visible.size() > 0) stretches.push_back({visible, visible.begin, 1});
    return stretches;
  }
  AppendStretch(row, {kRelativePositions.begin, distinct_.begin}, 0,
                &stretches);
  if (symmetric_) {
    AppendStretch(row, {distinct_.begin, 0}, -1, &stretches);
    AppendStretch(row, {0, distinct_.end}, 1, &stretches);
  } else {
    AppendStretch(row, distinct_, 1, &stretches);
  }
  AppendStretch(row, {distinct_.end, kRelativePositions.end}, 0, &stretches);
  return stretches;
}

}  // namespace attnbias
