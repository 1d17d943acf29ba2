// SPDX-License-Identifier: Apache-2.0
#include "core/logits/term.h"

#include <cstdlib>

#include "core/base/errors.h"
#include "core/encoding/encoding.h"

namespace attnbias {

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

}  // namespace attnbias
