// SPDX-License-Identifier: Apache-2.0
#include "core/logits/plan.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/encoding/common/pair_checks.h"
#include "core/encoding/encoding.h"
#include "core/request/rules.h"
#include "core/table/table.h"

namespace attnbias {
namespace {

// Maximum number of values at one position over all heads, since a BLAS uses 31-bit sizes.
constexpr int64_t kMaxWidth = int64_t{1} << 24;

// Models that use distances differ in their column order, so no default suits them all.
absl::Status CheckColumnsAreSet(const v1::LogitsSpec& spec) {
  if (!spec.sinusoidal_distances().has_sinusoidal() ||
      spec.sinusoidal_distances().sinusoidal().columns() != v1::COLUMNS_UNSPECIFIED) {
    return absl::OkStatus();
  }
  return Invalid(
      "sinusoidal_distances.sinusoidal.columns: not set, want SINES_COSINES (Transformer-XL, "
      "XLNet), INTERLEAVED (Conformer) or COSINES_SINES");
}

}  // namespace

absl::Status Project(absl::string_view field, const std::optional<Table>& projection,
                     const v1::LogitsSpec& request, TermComponent* component) {
  if (!projection.has_value()) return absl::OkStatus();
  const int64_t width = component->encoding->width;
  if (projection->columns() != width) {
    return Invalid(field, ": got ", projection->columns(), " columns, want ", width, " (dim)");
  }
  component->projection = projection;
  component->heads = request.num_heads();
  component->roundings = width + 2;
  return absl::OkStatus();
}

absl::StatusOr<EncodingPtr> RowsOf(const Table& table) {
  const absl::Span<const int64_t> shape = table.shape();
  Tables tables;
  v1::TensorSpec spec;
  v1::LearnedRelative& rows = *spec.mutable_learned_relative();
  *rows.mutable_vectors() = tables.Add(table);
  rows.set_left(0);
  rows.set_right(shape[shape.size() - 2] - 1);
  return MakeEncoding(tables, spec);
}

std::function<KeySegments(int64_t row)> RelativeVectors::For(const v1::LogitsSpec& request,
                                                             int64_t query_offset) const {
  return [vectors = *this, offset = query_offset, key_length = request.key_length()](int64_t row) {
    const int64_t position = row + offset;
    const Range& distinct = vectors.distinct;
    KeySegments segments;
    const auto append = [&](Range relative, int64_t step) {
      const Range keys = {std::max<int64_t>(0, relative.begin + position),
                          std::min(key_length, relative.end + position)};
      if (keys.size() <= 0) return;
      const int64_t nearest = vectors.Nearest(keys.begin - position);
      segments.push_back(
          {keys, (vectors.symmetric ? std::abs(nearest) : nearest) - vectors.first, step});
    };
    append({kRelativePositions.begin, distinct.begin}, 0);
    if (vectors.symmetric) {
      append({distinct.begin, 0}, -1);
      append({0, distinct.end}, 1);
    } else {
      append(distinct, 1);
    }
    append({distinct.end, kRelativePositions.end}, 0);
    return segments;
  };
}

absl::StatusOr<LogitsPlanPtr> LogitsPlan::Make(v1::LogitsSpec spec, const Tables& tables,
                                               const LogitsLimits& limits) {
  std::shared_ptr<LogitsPlan> plan(new LogitsPlan(std::move(spec)));
  ATTNBIAS_RETURN_IF_ERROR(plan->Resolve(tables, limits));
  return plan;
}

absl::Status LogitsPlan::Resolve(const Tables& tables, const LogitsLimits& limits) {
  ATTNBIAS_RETURN_IF_ERROR(CheckColumnsAreSet(spec_));
  ATTNBIAS_RETURN_IF_ERROR(Complete("", false, tables, spec_));
  for (const auto& [field, type] :
       {std::pair("data_type", input_type()), std::pair("output_data_type", output_type())}) {
    if (type == DataType::kI32) return Invalid(field, ": got I32, want F64, F32, F16 or BF16");
  }
  if (int64_t{spec_.num_heads()} * spec_.head_dim() > kMaxWidth) {
    return Invalid("head_dim: got ", spec_.head_dim(), " for ", spec_.num_heads(),
                   " heads, want a product of at most ", kMaxWidth);
  }
  ATTNBIAS_ASSIGN_OR_RETURN(query_offset_, QueryOffsetOf("", spec_));
  query_bias_ = tables.Get(spec_.query_bias());
  bool doubles = input_type() == DataType::kF64 || output_type() == DataType::kF64;
  for (const Tables::Entry& entry : tables) {
    doubles |= entry.table.data_type() == DataType::kF64;
    ATTNBIAS_RETURN_IF_ERROR(CheckNetworkSize(entry.field, entry.table));
  }
  work_type_ = doubles ? DataType::kF64 : DataType::kF32;
  ATTNBIAS_ASSIGN_OR_RETURN(const auto* field, FieldIn("term", spec_));
  ATTNBIAS_ASSIGN_OR_RETURN(
      term_,
      TermRegistration::Describe(field->number(), spec_.GetReflection()->GetMessage(spec_, field),
                                 tables, spec_, query_offset_));
  input_width_ = term_.weighs_values  ? spec_.key_length()
                 : spec_.bias_alone() ? 0
                                      : spec_.head_dim();
  output_width_ = term_.weighs_values ? spec_.head_dim() : spec_.key_length();
  if (term_.weighs_values && spec_.fill_case() != spec_.FILL_NOT_SET) {
    return Invalid(
        "fill: got a value, want none: sums over keys have no separate element for a masked key");
  }
  ATTNBIAS_RETURN_IF_ERROR(RoundFill("", spec_, output_type(), fill_.data()));
  if (term_.weighs_values && query_bias_.has_value()) {
    return Invalid("query_bias: got a table, want none: shaw_values has no query");
  }
  int64_t room = limits.max_vector_bytes;
  for (const TermComponent& component : term_.components) {
    const int64_t vector_bytes = component.heads * spec_.head_dim() * SizeOf(work_type_);
    if (component.count > room / vector_bytes) {
      return Invalid(component.sized_by, ": needs ", component.count, " vectors of ", vector_bytes,
                     " bytes, want at most ", room / vector_bytes, ", this server's limit");
    }
    room -= component.count * vector_bytes;
  }
  const int64_t most = limits.max_row_bytes / SizeOf(output_type());
  if (output_width_ > most) {
    return Invalid("key_length: got ", output_width_, ", want at most ", most,
                   ", since a row of one head must fit in a message");
  }
  CountRoundings();
  return absl::OkStatus();
}

absl::Status LogitsPlan::CheckRows(int64_t first_row, int64_t num_rows, int64_t bytes) const {
  if (first_row < 0 || first_row >= spec_.query_length()) {
    return Invalid("first_row: got ", first_row, ", want an integer in [0, ", spec_.query_length(),
                   "), below query_length");
  }
  if (num_rows < 1 || num_rows > spec_.query_length() - first_row) {
    return Invalid("num_rows: got ", num_rows, ", want an integer in [1, ",
                   spec_.query_length() - first_row, "], since first_row is ", first_row,
                   " and there are ", spec_.query_length(), " rows");
  }
  int64_t wanted = SizeOf(input_type());
  const bool fits = !__builtin_mul_overflow(wanted, spec_.num_heads(), &wanted) &&
                    !__builtin_mul_overflow(wanted, num_rows, &wanted) &&
                    !__builtin_mul_overflow(wanted, input_width_, &wanted);
  if (fits && bytes == wanted) return absl::OkStatus();
  return Invalid("data: got ", bytes, " bytes, want ",
                 fits ? absl::StrCat(wanted) : "more than 2^63", " for shape [", spec_.num_heads(),
                 ", ", num_rows, ", ", input_width_, "] of ", std::string(NameOf(input_type())));
}

void LogitsPlan::CountRoundings() {
  const bool doubles = work_type_ == DataType::kF64;
  if (term_.weighs_values) {
    // Weights for keys that share a clipped end's vector are added first, in F64.
    roundings_ = std::min(spec_.key_length(), term_.components[0].count) +
                 (doubles ? spec_.key_length() + 1 : 2);
  } else {
    const auto additions = static_cast<int64_t>(term_.components.size()) - 1;
    roundings_ = spec_.head_dim() + additions + (query_bias_.has_value() ? 1 : 0);
  }
  // All F64 roundings of a vector together cause a smaller error than the rounding to F32 that
  // follows.
  int64_t of_vectors = 0;
  for (const TermComponent& component : term_.components) {
    of_vectors = std::max(of_vectors, component.roundings);
  }
  roundings_ += doubles || of_vectors == 0 ? of_vectors : 2;
  if (spec_.scale() != 1) ++roundings_;
}

Range LogitsPlan::VisibleKeys(int64_t row) const {
  const int64_t position = row + query_offset();
  Range keys = {0, spec_.key_length()};
  if (spec_.direction() == v1::DIRECTION_LEFT_TO_RIGHT) {
    keys.end = std::clamp<int64_t>(position + 1, 0, keys.end);
  } else if (spec_.direction() == v1::DIRECTION_RIGHT_TO_LEFT) {
    keys.begin = std::clamp<int64_t>(position, 0, keys.end);
  }
  return keys;
}

KeySegments LogitsPlan::KeySegmentsOf(const TermComponent& component, int64_t row) const {
  const Range visible = VisibleKeys(row);
  KeySegments segments;
  for (const KeySegment& whole : component.segments(row)) {
    const Range keys = {std::max(whole.keys.begin, visible.begin),
                        std::min(whole.keys.end, visible.end)};
    if (keys.size() <= 0) continue;
    segments.push_back(
        {keys, whole.vector + (keys.begin - whole.keys.begin) * whole.step, whole.step});
  }
  return segments;
}

}  // namespace attnbias
