// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/common/table_checks.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/errors.h"
#include "core/encoding/encoding.h"

namespace attnbias {
namespace {

using Axes = std::initializer_list<TableAxis>;

// Returns "[32 buckets, 8 heads]".
std::string ToText(Axes axes) {
  const auto format = [](std::string* out, const TableAxis& axis) {
    absl::StrAppend(out, axis.length, " ", axis.name);
  };
  return absl::StrCat("[", absl::StrJoin(axes, ", ", format), "]");
}

}  // namespace

absl::Status CheckShape(absl::string_view field, const Table& table, Axes axes) {
  const absl::Span<const int64_t> got = table.shape();
  std::vector<int64_t> want;
  for (const TableAxis& axis : axes) want.push_back(axis.length);
  if (got == absl::MakeConstSpan(want)) return absl::OkStatus();
  // A derived second length is right in either order of the axes.
  const bool swapped =
      want.size() == 2 && got.size() == 2 && got[0] != want[0] && got[1] == want[0];
  return Invalid(field, ": got shape [", absl::StrJoin(got, ", "), "], want ", ToText(axes),
                 swapped ? "; see the table's layout" : "");
}

absl::Status CheckTable(absl::string_view field, const std::optional<Table>& table, Axes axes) {
  if (table.has_value()) return CheckShape(field, *table, axes);
  return Invalid(field, ": not set, want a table of ", ToText(axes), ", or values BUCKETS");
}

absl::Status CheckNetworkSize(absl::string_view field, const Table& table) {
  if (table.size() <= kMaxNetworkNumbers) return absl::OkStatus();
  return Invalid(field, ": got ", table.size(), " numbers, want at most ", kMaxNetworkNumbers);
}

}  // namespace attnbias
