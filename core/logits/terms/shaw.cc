// SPDX-License-Identifier: Apache-2.0
// Shaw's keys and values: a learned vector for each relative position.
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/logits/spec/sequence_terms.h"
#include "core/logits/term.h"

namespace attnbias {
namespace {

template <typename Spec>
absl::StatusOr<LogitsTerm> DescribeShaw(const Spec& term,
                                        const LogitsSpec& request) {
  const int64_t count = *term.left + *term.right + 1;
  const bool shared = HasShape(*term.table, {count, request.head_dim});
  if (!shared &&
      !HasShape(*term.table, {request.num_heads, count, request.head_dim})) {
    return WrongShape(
        absl::StrCat(std::string(Spec::kName), ".table"), *term.table,
        absl::StrCat("[left + right + 1, head_dim] = [", count, ", ",
                     request.head_dim, "], or the same for each of ",
                     request.num_heads, " heads"));
  }
  const RelativeVectors vectors = {.distinct = {-*term.left, *term.right + 1},
                                   .first = -*term.left};
  ATTNBIAS_ASSIGN_OR_RETURN(EncodingPtr rows, RowsOf(*term.table));
  // Vectors ascend by key - query, and so the rows of a table that counts it.
  const bool descends = term.sign == RelativeSign::kQueryMinusKey;
  constexpr bool kOfValues = std::is_same_v<Spec, ShawValuesSpec>;
  return LogitsTerm{
      {{.encoding = std::move(rows),
        .count = count,
        .first = descends ? count - 1 : 0,
        .descends = descends,
        .heads = shared ? 1 : request.num_heads,
        .stretches = vectors.For(request),
        .sized_by = kOfValues ? "shaw_values.table" : "shaw_keys.table"}},
      kOfValues};
}

const TermRegistration kShawKeys(&DescribeShaw<ShawKeysSpec>);
const TermRegistration kShawValues(&DescribeShaw<ShawValuesSpec>);

}  // namespace
}  // namespace attnbias
