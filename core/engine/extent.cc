// SPDX-License-Identifier: Apache-2.0
#include "core/engine/extent.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "core/encoding/common/pair_checks.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

std::string ToString(Range range) {
  return absl::StrCat("[", range.begin, ", ", range.end, ")");
}

// A window must be a part of the whole.
absl::Status CheckWindow(absl::string_view field, Range window, Range whole) {
  if (window.begin < window.end && whole.Contains(window)) {
    return absl::OkStatus();
  }
  return Invalid(field, ": got ", ToString(window),
                 ", want a range that is not empty inside ", ToString(whole));
}

absl::Status CheckList(absl::string_view field,
                       const std::vector<int64_t>& list) {
  if (list.empty() ||
      static_cast<int64_t>(list.size()) > kMaxPositionListLength) {
    return Invalid(field, ": got ", list.size(), " positions, want 1 to ",
                   kMaxPositionListLength);
  }
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] < -kMaxPosition || list[i] > kMaxPosition) {
      return Invalid(field, ".positions[", i, "]: got ", list[i],
                     ", want an integer in [-2^40, 2^40]");
    }
  }
  return absl::OkStatus();
}

// Whether none of the fields that a list replaces is set.
absl::Status CheckAlone(
    absl::string_view list,
    std::initializer_list<std::pair<absl::string_view, bool>> replaced) {
  for (const auto& [field, is_set] : replaced) {
    if (!is_set) continue;
    return Invalid(list, ": got ", field, " beside it, want the list alone");
  }
  return absl::OkStatus();
}

absl::Status ResolveHeads(absl::string_view field, const Encoding& encoding,
                          std::optional<Range>& heads, Window& window) {
  const Range all = {0, encoding.lanes};
  window.heads = heads.value_or(all);
  if (!encoding.has_heads) {
    if (!heads.has_value()) return absl::OkStatus();
    return Invalid(field, ": got ", ToString(*heads),
                   ", want none: the numbers are the same for all heads");
  }
  heads = window.heads;
  return CheckWindow(field, *heads, all);
}

absl::Status ResolvePositionIds(const Encoding& encoding,
                                const std::vector<std::vector<int64_t>>& lists,
                                Window& window) {
  size_t num_axes = 1;
  for (const AxisColumns& each : encoding.axis_columns) {
    num_axes = std::max(num_axes, static_cast<size_t>(each.axis + 1));
  }
  if (lists.size() != num_axes) {
    return Invalid("table.position_ids: got ", lists.size(), " lists, want ",
                   num_axes, ", one for each axis");
  }
  std::vector<Positions>& axes = window.axes;
  for (size_t axis = 0; axis < lists.size(); ++axis) {
    const std::string field = absl::StrCat("table.position_ids[", axis, "]");
    ATTNBIAS_RETURN_IF_ERROR(CheckList(field, lists[axis]));
    if (lists[axis].size() != lists[0].size()) {
      return Invalid(field, ": got ", lists[axis].size(), " positions, want ",
                     lists[0].size(), ", as many as on the first axis");
    }
    axes.emplace_back(lists[axis]);
  }
  const auto same = [&axes](const Positions& each) { return each == axes[0]; };
  if (std::ranges::all_of(axes, same)) axes.resize(1);
  return absl::OkStatus();
}

absl::Status ResolveTable(const Encoding& encoding, TableExtent& extent,
                          Window& window) {
  window.heads = {0, encoding.lanes};
  if (extent.positions.has_value() == !extent.position_ids.empty()) {
    return Invalid("table: got ",
                   extent.positions.has_value() ? "both" : "neither",
                   " of positions and position_ids, want one of them");
  }
  std::vector<Positions>& axes = window.axes;
  if (extent.positions.has_value()) {
    ATTNBIAS_RETURN_IF_ERROR(
        CheckWindow("table.positions", *extent.positions, kAllPositions));
    axes.emplace_back(*extent.positions);
  } else {
    ATTNBIAS_RETURN_IF_ERROR(
        ResolvePositionIds(encoding, extent.position_ids, window));
  }
  if (axes.size() == 1 && axes[0].is_range()) {
    extent.positions = axes[0].hull();
    extent.position_ids.clear();
  }
  return absl::OkStatus();
}

absl::Status ResolveGrid(const Encoding& encoding, GridExtent& extent,
                         Window& window) {
  const Range whole = AllTokens(encoding);
  extent.queries = extent.queries.value_or(whole);
  extent.keys = extent.keys.value_or(whole);
  ATTNBIAS_RETURN_IF_ERROR(CheckWindow("grid.queries", *extent.queries, whole));
  ATTNBIAS_RETURN_IF_ERROR(CheckWindow("grid.keys", *extent.keys, whole));
  window.queries = Positions(*extent.queries);
  window.keys = Positions(*extent.keys);
  return ResolveHeads("grid.heads", encoding, extent.heads, window);
}

absl::Status ResolveQueryList(PairExtent& extent, Window& window) {
  ATTNBIAS_RETURN_IF_ERROR(
      CheckList("pair.query_positions", *extent.query_positions));
  ATTNBIAS_RETURN_IF_ERROR(
      CheckAlone("pair.query_positions",
                 {{"query_length", extent.query_length != 0},
                  {"queries", extent.queries.has_value()},
                  {"alignment", extent.alignment.has_value()},
                  {"query_offset", extent.query_offset.has_value()}}));
  Positions& queries = window.queries;
  queries = Positions(*extent.query_positions);
  if (queries.is_range()) {
    extent.query_positions.reset();
    extent.query_length = queries.size();
    extent.query_offset = queries.hull().begin;
    extent.queries = {0, queries.size()};
  }
  return absl::OkStatus();
}

absl::Status ResolveQueryRange(PairExtent& extent, Window& window) {
  if (extent.key_positions.has_value() && !extent.query_offset.has_value()) {
    return Invalid(
        "pair.query_offset: not set, want the position of query 0 where "
        "keys are a list of positions");
  }
  ATTNBIAS_ASSIGN_OR_RETURN(
      const int64_t offset,
      QueryOffsetOf("pair.", extent.query_length, extent.key_length,
                    extent.alignment, extent.query_offset));
  const Range whole = {0, extent.query_length};
  const Range queries = extent.queries.value_or(whole);
  ATTNBIAS_RETURN_IF_ERROR(CheckWindow("pair.queries", queries, whole));
  window.queries =
      Positions(Range{queries.begin + offset, queries.end + offset});
  extent.alignment.reset();
  extent.query_offset = offset;
  extent.queries = queries;
  return absl::OkStatus();
}

absl::Status ResolveKeyList(const Encoding& encoding, PairExtent& extent,
                            Window& window) {
  ATTNBIAS_RETURN_IF_ERROR(
      CheckList("pair.key_positions", *extent.key_positions));
  ATTNBIAS_RETURN_IF_ERROR(
      CheckAlone("pair.key_positions", {{"key_length", extent.key_length != 0},
                                        {"keys", extent.keys.has_value()}}));
  if (encoding.anchored_at_last_key) {
    return Invalid("pair.key_positions: got a list, want key_length: ",
                   std::string(encoding.name), " counts from the last key");
  }
  Positions& keys = window.keys;
  keys = Positions(*extent.key_positions);
  if (keys.is_range() && keys.hull().begin >= 0 &&
      keys.hull().end <= kMaxPosition) {
    extent.key_positions.reset();
    extent.key_length = keys.hull().end;
    extent.keys = keys.hull();
  }
  return absl::OkStatus();
}

absl::Status ResolveKeyRange(const Encoding& encoding, PairExtent& extent,
                             Window& window) {
  const Range whole = {0, extent.key_length};
  const Range keys = extent.keys.value_or(whole);
  ATTNBIAS_RETURN_IF_ERROR(CheckWindow("pair.keys", keys, whole));
  window.keys = Positions(keys);
  window.key_anchor = encoding.anchored_at_last_key ? extent.key_length - 1 : 0;
  extent.keys = keys;
  return absl::OkStatus();
}

absl::Status ResolvePair(const Encoding& encoding, PairExtent& extent,
                         Window& window) {
  if (!extent.query_positions.has_value()) {
    ATTNBIAS_RETURN_IF_ERROR(
        CheckLength("pair.query_length", extent.query_length));
  }
  if (!extent.key_positions.has_value()) {
    ATTNBIAS_RETURN_IF_ERROR(CheckLength("pair.key_length", extent.key_length));
  }
  ATTNBIAS_RETURN_IF_ERROR(extent.query_positions.has_value()
                               ? ResolveQueryList(extent, window)
                               : ResolveQueryRange(extent, window));
  ATTNBIAS_RETURN_IF_ERROR(extent.key_positions.has_value()
                               ? ResolveKeyList(encoding, extent, window)
                               : ResolveKeyRange(encoding, extent, window));
  return ResolveHeads("pair.heads", encoding, extent.heads, window);
}

// The field whose value goes beyond `domain`.
absl::string_view FieldBeyond(Range domain, const Plan& plan,
                              const Extent& extent) {
  if (const auto* table = std::get_if<TableExtent>(&extent)) {
    return table->positions.has_value() ? "table.positions"
                                        : "table.position_ids";
  }
  const auto& pair = std::get<PairExtent>(extent);
  const bool by_query = plan.encoding().structure == Structure::kDense
                            ? !domain.Contains(plan.window().queries.hull())
                            : plan.hull().begin < domain.begin;
  if (!by_query) {
    return pair.key_positions.has_value() ? "pair.key_positions"
                                          : "pair.key_length";
  }
  if (pair.query_positions.has_value()) return "pair.query_positions";
  return pair.query_offset.value_or(0) != 0 ? "pair.query_offset"
                                            : "pair.query_length";
}

}  // namespace

absl::Status ResolveExtent(const Encoding& encoding, Extent& extent,
                           Window& window) {
  const Structure structure = encoding.structure;
  if (structure == Structure::kTable) {
    if (auto* table = std::get_if<TableExtent>(&extent)) {
      return ResolveTable(encoding, *table, window);
    }
  } else if (structure == Structure::kBlockToeplitz2D) {
    if (std::holds_alternative<std::monostate>(extent)) {
      extent = GridExtent();
    }
    if (auto* grid = std::get_if<GridExtent>(&extent)) {
      return ResolveGrid(encoding, *grid, window);
    }
  } else if (auto* pair = std::get_if<PairExtent>(&extent)) {
    return ResolvePair(encoding, *pair, window);
  }
  constexpr absl::string_view kNames[] = {"not set", "got table", "got pair",
                                          "got grid"};
  absl::string_view wanted = "pair";
  if (structure == Structure::kTable) wanted = "table";
  if (structure == Structure::kBlockToeplitz2D) wanted = "grid or none";
  return Invalid("extent: ", kNames[extent.index()], ", want ", wanted,
                 ", which is what ", std::string(encoding.name), " takes");
}

Range AllTokens(const Encoding& encoding) {
  return {0, encoding.grid.tokens() + (encoding.has_border() ? 1 : 0)};
}

absl::Status CheckDomain(const Plan& plan, const Extent& extent) {
  const Range domain = plan.encoding().domain;
  const Range hull = plan.hull();
  if (domain.Contains(hull)) return absl::OkStatus();
  const bool pairs = plan.encoding().structure == Structure::kToeplitz;
  return absl::OutOfRangeError(absl::StrCat(
      FieldBeyond(domain, plan, extent), ": got ", pairs ? "relative " : "",
      "positions in ", ToString(hull), ", want them in ", ToString(domain),
      ", which is all that ", std::string(plan.encoding().name), " has"));
}

}  // namespace attnbias
