// SPDX-License-Identifier: Apache-2.0
#include "core/engine/visible_rows.h"

#include <algorithm>

namespace attnbias {
namespace {

// Positions from which some key is visible: disjoint, ascending.
std::vector<Range> SeeingPositions(const Positions& keys, Range visible) {
  // Key k is visible from positions in (k - visible.end, k - visible.begin].
  const auto seeing = [&](Range hull) {
    return Range{hull.begin - visible.end + 1, hull.end - visible.begin};
  };
  if (keys.is_range()) return {seeing(keys.hull())};
  std::vector<int64_t> sorted = keys.list();
  std::ranges::sort(sorted);
  std::vector<Range> result;
  for (const int64_t key : sorted) {
    const Range next = seeing({key, key + 1});
    if (!result.empty() && next.begin <= result.back().end) {
      result.back().end = next.end;
    } else {
      result.push_back(next);
    }
  }
  return result;
}

}  // namespace

std::vector<Range> RowsWithoutVisibleKeys(const Positions& queries,
                                          const Positions& keys,
                                          Range visible) {
  const std::vector<Range> seeing = SeeingPositions(keys, visible);
  std::vector<Range> rows;
  if (queries.is_range()) {
    const Range hull = queries.hull();
    int64_t blind = hull.begin;
    for (const Range& each : seeing) {
      const int64_t end = std::min(each.begin, hull.end);
      if (blind < end) rows.push_back({blind - hull.begin, end - hull.begin});
      blind = std::max(blind, each.end);
    }
    if (blind < hull.end) {
      rows.push_back({blind - hull.begin, hull.size()});
    }
    return rows;
  }
  for (int64_t i = 0; i < queries.size(); ++i) {
    const int64_t query = queries.At(i);
    const auto after =
        std::ranges::upper_bound(seeing, query, {}, &Range::begin);
    if (after != seeing.begin() && query < std::prev(after)->end) continue;
    if (!rows.empty() && rows.back().end == i) {
      ++rows.back().end;
    } else {
      rows.push_back({i, i + 1});
    }
  }
  return rows;
}

}  // namespace attnbias
