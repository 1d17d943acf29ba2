// SPDX-License-Identifier: Apache-2.0
// Shaw's keys and values: a learned vector for each relative position.
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/logits/term.h"

namespace attnbias {
namespace {

template <bool kOfValues>
absl::StatusOr<LogitsTerm> DescribeShaw(const v1::RelativeTable& term, const Tables& tables,
                                        const v1::LogitsSpec& request,
                                        const int64_t& query_offset) {
  constexpr absl::string_view kField = kOfValues ? "shaw_values.table" : "shaw_keys.table";
  const Table table = *tables.Get(term.table());
  const int64_t count = term.left() + term.right() + 1;
  const bool shared = HasShape(table, {count, request.head_dim()});
  if (!shared && !HasShape(table, {request.num_heads(), count, request.head_dim()})) {
    return WrongShape(
        kField, table,
        absl::StrCat("[left + right + 1, head_dim] = [", count, ", ", request.head_dim(),
                     "], or the same for each of ", request.num_heads(), " heads"));
  }
  const RelativeVectors vectors = {.distinct = {-term.left(), term.right() + 1},
                                   .first = -term.left()};
  ATTNBIAS_ASSIGN_OR_RETURN(EncodingPtr rows, RowsOf(table));
  // Vectors ascend by key - query, as do the rows of a table with that sign.
  const bool descends = term.sign() == v1::RELATIVE_SIGN_QUERY_MINUS_KEY;
  return LogitsTerm{{{.encoding = std::move(rows),
                      .count = count,
                      .first = descends ? count - 1 : 0,
                      .descends = descends,
                      .heads = shared ? 1 : request.num_heads(),
                      .segments = vectors.For(request, query_offset),
                      .sized_by = kField}},
                    kOfValues};
}

const TermRegistration kShawKeys(v1::LogitsSpec::kShawKeysFieldNumber, &DescribeShaw<false>);
const TermRegistration kShawValues(v1::LogitsSpec::kShawValuesFieldNumber, &DescribeShaw<true>);

}  // namespace
}  // namespace attnbias
