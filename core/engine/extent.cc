// SPDX-License-Identifier: Apache-2.0
#include "core/engine/extent.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "core/encoding/common/pair_checks.h"
#include "core/request/rules.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

std::string ToString(Range range) {
  return absl::StrCat("[", range.begin, ", ", range.end, ")");
}

Range RangeOf(const v1::Range& range) { return {range.begin(), range.end()}; }

void Set(v1::Range* field, Range range) {
  field->set_begin(range.begin);
  field->set_end(range.end);
}

// A window must be a part of the whole.
absl::Status CheckWindow(absl::string_view field, Range window, Range whole) {
  if (window.begin < window.end && whole.Contains(window)) {
    return absl::OkStatus();
  }
  return Invalid(field, ": got ", ToString(window),
                 ", want a range that is not empty inside ", ToString(whole));
}

// Reads a list of positions.
absl::Status ReadList(absl::string_view field, const v1::PositionList& list,
                      Positions& positions) {
  const auto& given = list.positions();
  if (given.empty() || given.size() > kMaxPositionListLength) {
    return Invalid(field, ": got ", given.size(), " positions, want 1 to ",
                   kMaxPositionListLength, ", or a range or a grid");
  }
  for (int i = 0; i < given.size(); ++i) {
    if (given[i] < -kMaxPosition || given[i] > kMaxPosition) {
      return Invalid(field, ".positions[", i, "]: got ", given[i],
                     ", want an integer in [-2^40, 2^40]");
    }
  }
  positions = Positions(std::vector<int64_t>(given.begin(), given.end()));
  return absl::OkStatus();
}

template <typename Extent>
absl::Status ResolveHeads(absl::string_view field, const Encoding& encoding,
                          Extent& extent, Window& window) {
  const Range all = {0, encoding.lanes};
  window.heads = extent.has_heads() ? RangeOf(extent.heads()) : all;
  if (!encoding.has_heads) {
    if (!extent.has_heads()) return absl::OkStatus();
    return Invalid(field, ": got ", ToString(window.heads),
                   ", want none: the numbers are the same for all heads");
  }
  Set(extent.mutable_heads(), window.heads);
  return CheckWindow(field, window.heads, all);
}

absl::Status ResolvePositionIds(const Encoding& encoding,
                                const v1::TableExtent& extent, Window& window) {
  const int64_t num_axes = encoding.NumAxes();
  if (extent.position_ids_size() != num_axes) {
    return Invalid("table.position_ids: got ", extent.position_ids_size(),
                   " lists, want ", num_axes, ", one for each axis");
  }
  std::vector<Positions>& axes = window.axes;
  for (int axis = 0; axis < num_axes; ++axis) {
    const std::string field = absl::StrCat("table.position_ids[", axis, "]");
    ATTNBIAS_RETURN_IF_ERROR(
        ReadList(field, extent.position_ids(axis), axes.emplace_back()));
    if (axes[axis].size() != axes[0].size()) {
      return Invalid(field, ": got ", axes[axis].size(), " positions, want ",
                     axes[0].size(), ", as many as on the first axis");
    }
  }
  const auto same = [&axes](const Positions& each) { return each == axes[0]; };
  if (std::ranges::all_of(axes, same)) axes.resize(1);
  return absl::OkStatus();
}

// Sets the axes of a table to those of a grid. Each axis has columns.
absl::Status ResolveGridOfAxes(const Encoding& encoding,
                               v1::TableExtent& extent, Window& window) {
  const int64_t num_axes = encoding.NumAxes();
  const int given = extent.grid_size();
  if (num_axes == 1) {
    return Invalid("table.grid: got ", given,
                   " lengths, want positions or position_ids: ",
                   std::string(encoding.name), " has one axis here");
  }
  if (given != num_axes) {
    return Invalid("table.grid: got ", given, " lengths, want ", num_axes,
                   ", one for each axis");
  }
  auto& offsets = *extent.mutable_grid_offset();
  if (offsets.empty()) offsets.Resize(given, 0);
  if (offsets.size() != given) {
    return Invalid("table.grid_offset: got ", offsets.size(),
                   " positions, want ", given, ", one for each axis");
  }
  int64_t tokens = 1;
  for (int axis = 0; axis < given; ++axis) {
    const Range positions = {offsets[axis], offsets[axis] + extent.grid(axis)};
    ATTNBIAS_RETURN_IF_ERROR(CheckWindow(absl::StrCat("table.grid[", axis, "]"),
                                         positions, kAllPositions));
    window.axes.emplace_back(positions);
    tokens *= positions.size();
    if (tokens <= kMaxPosition) continue;
    return Invalid("table.grid: got more than 2^40 tokens, want at most 2^40");
  }
  window.is_grid = true;
  return absl::OkStatus();
}

absl::Status ResolveTable(const Encoding& encoding, v1::TableExtent& extent,
                          Window& window) {
  ATTNBIAS_RETURN_IF_ERROR(Complete("table", false, Tables(), extent));
  window.heads = {0, encoding.lanes};
  const auto given = std::ranges::count(
      std::array{extent.has_positions(), !extent.position_ids().empty(),
                 !extent.grid().empty()},
      true);
  if (given != 1) {
    return Invalid("table: got ", given == 0 ? "none" : "several",
                   " of positions, position_ids and grid, want one of them");
  }
  std::vector<Positions>& axes = window.axes;
  if (!extent.grid().empty())
    return ResolveGridOfAxes(encoding, extent, window);
  if (extent.has_positions()) {
    const Range positions = RangeOf(extent.positions());
    ATTNBIAS_RETURN_IF_ERROR(
        CheckWindow("table.positions", positions, kAllPositions));
    axes.emplace_back(positions);
  } else {
    ATTNBIAS_RETURN_IF_ERROR(ResolvePositionIds(encoding, extent, window));
  }
  if (axes.size() == 1 && axes[0].is_range()) {
    Set(extent.mutable_positions(), axes[0].hull());
    extent.clear_position_ids();
  }
  return absl::OkStatus();
}

absl::Status ResolveGrid(const Encoding& encoding, v1::GridExtent& extent,
                         Window& window) {
  ATTNBIAS_RETURN_IF_ERROR(Complete("grid", false, Tables(), extent));
  if (const int64_t tokens = encoding.grid.tokens(); tokens > kMaxGridTokens) {
    return Invalid(std::string(encoding.name), ".window: got ", tokens,
                   " tokens, want at most 65536");
  }
  auto& strides = *extent.mutable_query_stride();
  const auto axes = std::ssize(encoding.grid.sides);
  if (!strides.empty() && strides.size() != axes) {
    return Invalid("grid.query_stride: got ", strides.size(), " numbers, want ",
                   axes, ", one for each axis of window");
  }
  if (std::ranges::count(strides, 1) == strides.size()) strides.Clear();
  window.query_stride.assign(strides.begin(), strides.end());
  const Range all_queries = AllTokens(encoding, window.query_stride);
  const Range all_keys = AllTokens(encoding);
  if (!extent.has_queries()) Set(extent.mutable_queries(), all_queries);
  if (!extent.has_keys()) Set(extent.mutable_keys(), all_keys);
  const Range queries = RangeOf(extent.queries());
  const Range keys = RangeOf(extent.keys());
  ATTNBIAS_RETURN_IF_ERROR(CheckWindow("grid.queries", queries, all_queries));
  ATTNBIAS_RETURN_IF_ERROR(CheckWindow("grid.keys", keys, all_keys));
  window.queries = Positions(queries);
  window.keys = Positions(keys);
  return ResolveHeads("grid.heads", encoding, extent, window);
}

absl::Status ResolveQueryList(v1::PairExtent& extent, Window& window) {
  ATTNBIAS_RETURN_IF_ERROR(ReadList("pair.query_positions",
                                    extent.query_positions(), window.queries));
  if (window.queries.is_range()) {
    extent.clear_query_positions();
    extent.set_query_length(window.queries.size());
    extent.set_query_offset(window.queries.hull().begin);
    Set(extent.mutable_queries(), {0, window.queries.size()});
  }
  return absl::OkStatus();
}

absl::Status ResolveQueryRange(v1::PairExtent& extent, Window& window) {
  if (extent.has_key_positions() && !extent.has_query_offset()) {
    return Invalid(
        "pair.query_offset: not set, want the position of query 0 where "
        "keys are a list of positions");
  }
  ATTNBIAS_ASSIGN_OR_RETURN(const int64_t offset,
                            QueryOffsetOf("pair.", extent));
  const Range whole = {0, extent.query_length()};
  const Range queries =
      extent.has_queries() ? RangeOf(extent.queries()) : whole;
  ATTNBIAS_RETURN_IF_ERROR(CheckWindow("pair.queries", queries, whole));
  window.queries =
      Positions(Range{queries.begin + offset, queries.end + offset});
  extent.set_query_offset(offset);
  Set(extent.mutable_queries(), queries);
  return absl::OkStatus();
}

absl::Status ResolveKeyList(const Encoding& encoding, v1::PairExtent& extent,
                            Window& window) {
  ATTNBIAS_RETURN_IF_ERROR(
      ReadList("pair.key_positions", extent.key_positions(), window.keys));
  if (encoding.anchored_at_last_key) {
    return Invalid("pair.key_positions: got a list, want key_length: ",
                   std::string(encoding.name), " counts from the last key");
  }
  const Range hull = window.keys.hull();
  if (window.keys.is_range() && hull.begin >= 0 && hull.end <= kMaxPosition) {
    extent.clear_key_positions();
    extent.set_key_length(hull.end);
    Set(extent.mutable_keys(), hull);
  }
  return absl::OkStatus();
}

absl::Status ResolveKeyRange(const Encoding& encoding, v1::PairExtent& extent,
                             Window& window) {
  const Range whole = {0, extent.key_length()};
  const Range keys = extent.has_keys() ? RangeOf(extent.keys()) : whole;
  ATTNBIAS_RETURN_IF_ERROR(CheckWindow("pair.keys", keys, whole));
  window.keys = Positions(keys);
  window.key_anchor =
      encoding.anchored_at_last_key ? extent.key_length() - 1 : 0;
  Set(extent.mutable_keys(), keys);
  return absl::OkStatus();
}

absl::Status ResolvePair(const Encoding& encoding, v1::PairExtent& extent,
                         Window& window) {
  ATTNBIAS_RETURN_IF_ERROR(Complete("pair", false, Tables(), extent));
  ATTNBIAS_RETURN_IF_ERROR(extent.has_query_positions()
                               ? ResolveQueryList(extent, window)
                               : ResolveQueryRange(extent, window));
  ATTNBIAS_RETURN_IF_ERROR(extent.has_key_positions()
                               ? ResolveKeyList(encoding, extent, window)
                               : ResolveKeyRange(encoding, extent, window));
  return ResolveHeads("pair.heads", encoding, extent, window);
}

// The field whose value goes beyond `domain`.
absl::string_view FieldBeyond(Range domain, const Plan& plan,
                              const v1::TensorSpec& spec) {
  if (spec.has_table()) {
    if (!spec.table().grid().empty()) return "table.grid";
    return spec.table().has_positions() ? "table.positions"
                                        : "table.position_ids";
  }
  const v1::PairExtent& pair = spec.pair();
  const bool by_query = plan.encoding().structure == Structure::kDense
                            ? !domain.Contains(plan.window().queries.hull())
                            : plan.hull().begin < domain.begin;
  if (!by_query) {
    return pair.has_key_positions() ? "pair.key_positions" : "pair.key_length";
  }
  if (pair.has_query_positions()) return "pair.query_positions";
  return pair.query_offset() != 0 ? "pair.query_offset" : "pair.query_length";
}

}  // namespace

absl::Status ResolveExtent(const Encoding& encoding, v1::TensorSpec& spec,
                           Window& window) {
  const Structure structure = encoding.structure;
  absl::string_view wanted = "pair";
  if (structure == Structure::kTable) {
    if (spec.has_table()) {
      return ResolveTable(encoding, *spec.mutable_table(), window);
    }
    wanted = "table";
  } else if (structure == Structure::kBlockToeplitz) {
    if (spec.has_grid() || spec.extent_case() == spec.EXTENT_NOT_SET) {
      return ResolveGrid(encoding, *spec.mutable_grid(), window);
    }
    wanted = "grid or none";
  } else if (spec.has_pair()) {
    return ResolvePair(encoding, *spec.mutable_pair(), window);
  }
  absl::string_view got = "not set";
  if (spec.has_table()) got = "got table";
  if (spec.has_pair()) got = "got pair";
  if (spec.has_grid()) got = "got grid";
  return Invalid("extent: ", got, ", want ", wanted, ", which is what ",
                 std::string(encoding.name), " takes");
}

Range AllTokens(const Encoding& encoding,
                const std::vector<int64_t>& query_stride) {
  return {0, encoding.grid.EveryNth(query_stride).tokens() +
                 (encoding.has_border() ? 1 : 0)};
}

absl::Status CheckDomain(const Plan& plan, const v1::TensorSpec& spec) {
  const Range domain = plan.encoding().domain;
  const Range hull = plan.hull();
  if (domain.Contains(hull)) return absl::OkStatus();
  const bool pairs = plan.encoding().structure == Structure::kToeplitz;
  return absl::OutOfRangeError(absl::StrCat(
      FieldBeyond(domain, plan, spec), ": got ", pairs ? "relative " : "",
      "positions in ", ToString(hull), ", want them in ", ToString(domain),
      ", which is all that ", std::string(plan.encoding().name), " has"));
}

}  // namespace attnbias
