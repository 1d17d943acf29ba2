// SPDX-License-Identifier: Apache-2.0
// Decomposed relative positions of tokens in a grid (Li et al. 2022, MViTv2; Li et al. 2022,
// ViTDet; Kirillov et al. 2023, SAM): one vector for the rows of a pair, and one for its columns.

#include <algorithm>

#include "core/base/errors.h"
#include "core/encoding/encoding.h"
#include "core/logits/plan.h"
#include "core/request/rules.h"

namespace attnbias {
namespace {

using Term = v1::DecomposedRelativePositions;

// Rows or columns of both grids.
struct Axis {
  int64_t queries;
  int64_t keys;

  int64_t num_vectors() const { return 2 * std::max(queries, keys) - 1; }

  // Returns the vector index for a query and a key, computed in float32 like torch: real arithmetic
  // gives a different index if neither side is a multiple of the other.
  int64_t VectorOf(int64_t query, int64_t key) const {
    const double query_step =
        std::max(static_cast<double>(keys) / static_cast<double>(queries), 1.0);
    const double key_step = std::max(static_cast<double>(queries) / static_cast<double>(keys), 1.0);
    const float difference = static_cast<float>(query) * static_cast<float>(query_step) -
                             static_cast<float>(key) * static_cast<float>(key_step);
    return static_cast<int64_t>(difference +
                                static_cast<float>(static_cast<double>(keys - 1) * key_step));
  }
};

// Each row of the key grid uses one vector.
KeySegments RowKeySegments(const Axis& rows, const Axis& columns, int64_t query) {
  KeySegments segments;
  for (int64_t row = 0; row < rows.keys; ++row) {
    segments.push_back({{row * columns.keys, (row + 1) * columns.keys},
                        rows.VectorOf(query / columns.queries, row)});
  }
  return segments;
}

// Each row of the key grid uses the same vectors, usually evenly spaced.
KeySegments ColumnKeySegments(const Axis& rows, const Axis& columns, int64_t query) {
  KeySegments of_row;
  for (int64_t column = 0; column < columns.keys; ++column) {
    const int64_t vector = columns.VectorOf(query % columns.queries, column);
    KeySegment* const last = of_row.empty() ? nullptr : &of_row.back();
    if (last != nullptr && last->keys.size() == 1) {
      last->step = vector - last->vector;
    }
    if (last != nullptr && vector == last->last_vector() + last->step) {
      ++last->keys.end;
    } else {
      of_row.push_back({{column, column + 1}, vector});
    }
  }
  KeySegments segments;
  for (int64_t row = 0; row < rows.keys; ++row) {
    for (KeySegment segment : of_row) {
      segment.keys.begin += row * columns.keys;
      segment.keys.end += row * columns.keys;
      segments.push_back(segment);
    }
  }
  return segments;
}

absl::Status CheckGrids(const Term& term, const v1::LogitsSpec& request, int64_t query_offset) {
  const auto check = [](absl::string_view field, int64_t got, int64_t height, int64_t width) {
    if (got == height * width) return absl::OkStatus();
    return Invalid(field, ": got ", got, ", want ", height * width, ", the number of tokens in a ",
                   height, " x ", width, " grid");
  };
  ATTNBIAS_RETURN_IF_ERROR(
      check("query_length", request.query_length(), term.query_height(), term.query_width()));
  ATTNBIAS_RETURN_IF_ERROR(
      check("key_length", request.key_length(), term.key_height(), term.key_width()));
  if (query_offset != 0) {
    return request.has_alignment()
               ? Invalid("alignment: got END, want START: both grids start at token 0")
               : Invalid("query_offset: got ", query_offset,
                         ", want 0, the offset of alignment START: both grids start at token 0");
  }
  if (request.direction() == v1::DIRECTION_BIDIRECTIONAL) return absl::OkStatus();
  return Invalid("direction: got ", ShortName(request.direction()),
                 ", want BIDIRECTIONAL: tokens in a grid have no order");
}

absl::StatusOr<TermComponent> Describe(const Table& table, const Axis& axis) {
  Tables tables;
  v1::TensorSpec spec;
  v1::LearnedAbsolute& rows = *spec.mutable_learned_absolute();
  *rows.mutable_table() = tables.Add(table);
  rows.mutable_resample()->add_target(axis.num_vectors());
  ATTNBIAS_ASSIGN_OR_RETURN(EncodingPtr encoding, MakeEncoding(tables, spec));
  return TermComponent{.encoding = std::move(encoding),
                       .count = axis.num_vectors(),
                       .roundings = table.rows() == axis.num_vectors() ? 0 : 1,
                       .sized_by = "head_dim"};
}

absl::StatusOr<LogitsTerm> DescribeDecomposedRelativePositions(const Term& term,
                                                               const Tables& tables,
                                                               const v1::LogitsSpec& request,
                                                               const int64_t& query_offset) {
  ATTNBIAS_RETURN_IF_ERROR(CheckGrids(term, request, query_offset));
  const Axis rows = {term.query_height(), term.key_height()};
  const Axis columns = {term.query_width(), term.key_width()};
  ATTNBIAS_ASSIGN_OR_RETURN(TermComponent of_rows, Describe(*tables.Get(term.rel_pos_h()), rows));
  ATTNBIAS_ASSIGN_OR_RETURN(TermComponent of_columns,
                            Describe(*tables.Get(term.rel_pos_w()), columns));
  of_rows.segments = [=](int64_t query) { return RowKeySegments(rows, columns, query); };
  of_columns.segments = [=](int64_t query) { return ColumnKeySegments(rows, columns, query); };
  return LogitsTerm{{std::move(of_rows), std::move(of_columns)}};
}

const TermRegistration kDecomposedRelativePositions(
    v1::LogitsSpec::kDecomposedRelativePositionsFieldNumber, &DescribeDecomposedRelativePositions);

}  // namespace
}  // namespace attnbias
