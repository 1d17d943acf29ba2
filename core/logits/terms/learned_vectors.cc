// SPDX-License-Identifier: Apache-2.0
// Learned vectors: for Shaw's keys and values, one per relative position; for absolute key
// positions, one per key.
#include "core/base/errors.h"
#include "core/logits/plan.h"

namespace attnbias {
namespace {

template <bool kOfValues>
absl::StatusOr<LogitsTerm> DescribeShaw(const v1::RelativeTable& term, const Tables& tables,
                                        const v1::LogitsSpec& request,
                                        const int64_t& query_offset) {
  constexpr absl::string_view kField = kOfValues ? "shaw_values.table" : "shaw_keys.table";
  const Table table = *tables.Get(term.table());
  const int64_t count = term.left() + term.right() + 1;
  const RelativeVectors vectors = {.distinct = {-term.left(), term.right() + 1},
                                   .first = -term.left()};
  ATTNBIAS_ASSIGN_OR_RETURN(EncodingPtr rows, RowsOf(table));
  // Vectors ascend by key - query, as do the rows of a table with that sign.
  const bool descends = term.sign() == v1::RELATIVE_SIGN_QUERY_MINUS_KEY;
  return LogitsTerm{{{.encoding = std::move(rows),
                      .count = count,
                      .first = descends ? count - 1 : 0,
                      .descends = descends,
                      .heads = table.shape().size() == 2 ? 1 : request.num_heads(),
                      .segments = vectors.For(request, query_offset),
                      .sized_by = kField}},
                    kOfValues};
}

const TermRegistration kShawKeys(v1::LogitsSpec::kShawKeysFieldNumber, &DescribeShaw<false>);
const TermRegistration kShawValues(v1::LogitsSpec::kShawValuesFieldNumber, &DescribeShaw<true>);

// Absolute key positions: one vector per key.
absl::StatusOr<LogitsTerm> DescribeAbsoluteKeys(const v1::AbsoluteKeys& term, const Tables& tables,
                                                const v1::LogitsSpec& request,
                                                const int64_t& /*query_offset*/) {
  const Table table = *tables.Get(term.positions());
  const std::optional<Table> projection = tables.Get(term.projection());
  const absl::Span<const int64_t> shape = table.shape();
  const size_t rank = shape.size();
  const auto refuse = [](const auto&... parts) {
    return Invalid("absolute_keys.positions: ", parts...);
  };
  if (rank == 3 && projection.has_value()) return refuse("got 3 axes, want 2 with a projection");
  if (shape[rank - 2] < request.key_length()) {
    return refuse("got ", shape[rank - 2], " rows, want at least key_length (",
                  request.key_length(), ")");
  }
  if (!projection.has_value() && shape[rank - 1] != request.head_dim()) {
    return refuse("got rows of ", shape[rank - 1], " numbers, want head_dim (", request.head_dim(),
                  ") without a projection");
  }
  ATTNBIAS_ASSIGN_OR_RETURN(EncodingPtr rows, RowsOf(table));
  TermComponent component = {.encoding = std::move(rows),
                             .count = request.key_length(),
                             .heads = rank == 3 ? request.num_heads() : 1,
                             .segments =
                                 [keys = request.key_length()](int64_t /*row*/) {
                                   return KeySegments{{{0, keys}, 0, 1}};
                                 },
                             .sized_by = "key_length"};
  ATTNBIAS_RETURN_IF_ERROR(Project("absolute_keys.projection", projection, request, &component));
  return LogitsTerm{{std::move(component)}};
}

const TermRegistration kAbsoluteKeys(v1::LogitsSpec::kAbsoluteKeysFieldNumber,
                                     &DescribeAbsoluteKeys);

}  // namespace
}  // namespace attnbias
