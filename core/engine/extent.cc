// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/errors.h"
#include "core/encoding/common/pair_checks.h"
#include "core/engine/plan.h"
#include "core/numerics/revolutions.h"
#include "core/request/rules.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

std::string ToString(Range range) { return absl::StrCat("[", range.begin, ", ", range.end, ")"); }

Range RangeOf(const v1::Range& range) { return {range.begin(), range.end()}; }

void Set(v1::Range* field, Range range) {
  field->set_begin(range.begin);
  field->set_end(range.end);
}

absl::Status CheckWindow(absl::string_view field, Range window, Range whole) {
  if (window.begin < window.end && whole.Contains(window)) return absl::OkStatus();
  return Invalid(field, ": got ", ToString(window), ", want a nonempty range inside ",
                 ToString(whole));
}

bool IsIntegerPosition(double position) {
  return std::fabs(position) <= static_cast<double>(kMaxPosition) &&
         position == std::trunc(position);
}

int LengthOf(const v1::PositionList& list) { return list.positions_size() + list.doubles_size(); }

// Checks a list's length. If its doubles are all integers, converts them to integers.
absl::Status NormalizeList(absl::string_view field, v1::PositionList& list) {
  const int count = LengthOf(list);
  if (count < 1 || count > kMaxPositionListLength) {
    return Invalid(field, ": got ", count, " positions, want 1 to ", kMaxPositionListLength,
                   ", or a range or a grid");
  }
  if (!std::ranges::all_of(list.doubles(), IsIntegerPosition)) return absl::OkStatus();
  for (const double position : list.doubles()) {
    list.add_positions(static_cast<int64_t>(position));
  }
  list.clear_doubles();
  return absl::OkStatus();
}

// Rejects a list whose doubles are not all integers.
absl::Status RefuseReals(absl::string_view field, const Encoding& encoding,
                         const v1::PositionList& list) {
  const auto first = std::ranges::find_if_not(list.doubles(), IsIntegerPosition);
  return Invalid(field, ".doubles[", first - list.doubles().begin(), "]: got ", *first,
                 ", want an integer in [-2^40, 2^40]: ", std::string(encoding.name),
                 " has no numbers at fractional positions here; only sinusoidal tables, and rotary "
                 "tables with angle EXACT and no decay, have them");
}

absl::Status ReadList(absl::string_view field, const Encoding& encoding, v1::PositionList& list,
                      Positions& positions) {
  ATTNBIAS_RETURN_IF_ERROR(NormalizeList(field, list));
  if (!list.doubles().empty()) return RefuseReals(field, encoding, list);
  const auto& given = list.positions();
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
absl::Status ResolveHeads(absl::string_view field, const Encoding& encoding, Extent& extent,
                          Window& window) {
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

// Returns "[3]: got 1e300, want ..." for the first of these positions that is not allowed on an
// axis with that offset; "" if all are allowed.
std::string WhyNoReals(absl::Span<const double> positions, double offset) {
  constexpr double kLeastMagnitude = 0x1p-149;  // a float's
  for (size_t i = 0; i < positions.size(); ++i) {
    const double position = positions[i];
    const bool is_near = std::fabs(position) <= static_cast<double>(kMaxPosition);
    if (is_near && BinarySum(position, offset).has_value() &&
        (position + offset == 0 || std::fabs(position + offset) >= kLeastMagnitude)) {
      continue;
    }
    return absl::StrCat("[", i, "]: got ", position,
                        ", want a number p in [-2^40, 2^40] such that ",
                        offset == 0 ? "p" : absl::StrCat("p + ", offset, " (the offset)"),
                        " is 0 or k 2^e of magnitude at least 2^-149, with |k| at most 2^62",
                        is_near && offset != 0 ? "; add the offset to positions yourself" : "");
  }
  return "";
}

// Sets the rows of a table at positions that are not all integers.
absl::Status ResolveReals(const Encoding& encoding, const v1::TableExtent& extent, Window& window) {
  RealPositions axes;
  for (int axis = 0; axis < extent.position_ids_size(); ++axis) {
    const v1::PositionList& list = extent.position_ids(axis);
    const std::string field = absl::StrCat("table.position_ids[", axis, "]");
    const bool has_doubles = !list.doubles().empty();
    if (encoding.prepare_reals == nullptr) {
      if (has_doubles) return RefuseReals(field, encoding, list);
      continue;
    }
    std::vector<double>& own = axes.emplace_back(list.doubles().begin(), list.doubles().end());
    own.insert(own.end(), list.positions().begin(), list.positions().end());
    const std::string why = WhyNoReals(own, encoding.axis_offsets[axis]);
    if (why.empty()) continue;
    return Invalid(field, has_doubles ? ".doubles" : ".positions", why);
  }
  window.axes.emplace_back(Range{0, std::ssize(axes[0])});
  window.reals = std::make_shared<const RealPositions>(std::move(axes));
  return absl::OkStatus();
}

// Sets the rows of a table at the same consecutive positions on every axis.
absl::Status ResolveListed(const Encoding& encoding, Range positions, Window& window) {
  if (positions.size() > kMaxPositionListLength) {
    return Invalid("table.positions: got ", positions.size(), " positions, want at most ",
                   kMaxPositionListLength, " with frequency_matrix");
  }
  for (const double offset : encoding.axis_offsets) {
    if (offset == 0) continue;
    for (int64_t p = positions.begin; p < positions.end; ++p) {
      if (BinarySum(static_cast<double>(p), offset).has_value()) continue;
      return Invalid("table.positions: got ", p, ", want p + ", offset,
                     " (the offset) to be 0 or k 2^e with |k| at most 2^62; add "
                     "the offset yourself and send the sums as position_ids");
    }
  }
  window.axes.emplace_back(positions);
  window.reals = std::make_shared<const RealPositions>(encoding.NumAxes());
  return absl::OkStatus();
}

absl::Status ResolvePositionIds(const Encoding& encoding, v1::TableExtent& extent, Window& window) {
  const int64_t num_axes = encoding.NumAxes();
  if (extent.position_ids_size() != num_axes) {
    return Invalid("table.position_ids: got ", extent.position_ids_size(), " lists, want ",
                   num_axes, ", one for each axis");
  }
  bool has_reals = false;
  for (int axis = 0; axis < num_axes; ++axis) {
    const std::string field = absl::StrCat("table.position_ids[", axis, "]");
    v1::PositionList& list = *extent.mutable_position_ids(axis);
    ATTNBIAS_RETURN_IF_ERROR(NormalizeList(field, list));
    has_reals = has_reals || !list.doubles().empty();
    const int count = LengthOf(extent.position_ids(0));
    if (LengthOf(list) != count) {
      return Invalid(field, ": got ", LengthOf(list), " positions, want ", count,
                     ", as many as on the first axis");
    }
  }
  if (has_reals) return ResolveReals(encoding, extent, window);
  std::vector<Positions>& axes = window.axes;
  for (int axis = 0; axis < num_axes; ++axis) {
    ATTNBIAS_RETURN_IF_ERROR(ReadList(absl::StrCat("table.position_ids[", axis, "]"), encoding,
                                      *extent.mutable_position_ids(axis), axes.emplace_back()));
  }
  const auto same = [&axes](const Positions& each) { return each == axes[0]; };
  if (std::ranges::all_of(axes, same)) axes.resize(1);
  if (encoding.prepare != nullptr) return absl::OkStatus();
  const std::vector<Positions> integers = std::exchange(axes, {});
  if (integers.size() == 1 && integers[0].is_range()) {
    return ResolveListed(encoding, integers[0].hull(), window);
  }
  return ResolveReals(encoding, extent, window);
}

// Sets the axes of a table to those of a grid. Each axis has its own columns.
absl::Status ResolveGridOfAxes(const Encoding& encoding, v1::TableExtent& extent, Window& window) {
  const int64_t num_axes = encoding.NumAxes();
  const int given = extent.grid_size();
  const auto refuse = [given](const auto&... want) {
    return Invalid("table.grid: got ", given, " lengths, want ", want...);
  };
  if (encoding.prepare == nullptr) {
    return refuse(
        "the tokens' position_ids: with frequency_matrix each column depends on all axes");
  }
  if (num_axes == 1) {
    return refuse("positions or position_ids: ", std::string(encoding.name), " has one axis here");
  }
  if (given != num_axes) return refuse(num_axes, ", one for each axis");
  auto& offsets = *extent.mutable_grid_offset();
  if (offsets.empty()) offsets.Resize(given, 0);
  int64_t tokens = 1;
  for (int axis = 0; axis < given; ++axis) {
    const Range positions = {offsets[axis], offsets[axis] + extent.grid(axis)};
    ATTNBIAS_RETURN_IF_ERROR(
        CheckWindow(absl::StrCat("table.grid[", axis, "]"), positions, kAllPositions));
    window.axes.emplace_back(positions);
    tokens *= positions.size();
    if (tokens <= kMaxPosition) continue;
    return Invalid("table.grid: got more than 2^40 tokens, want at most 2^40");
  }
  window.is_grid = true;
  return absl::OkStatus();
}

absl::Status ResolveTable(const Encoding& encoding, v1::TableExtent& extent, Window& window) {
  ATTNBIAS_RETURN_IF_ERROR(Complete("table", false, Tables(), extent));
  window.heads = {0, encoding.lanes};
  const auto given = std::ranges::count(
      std::array{extent.has_positions(), !extent.position_ids().empty(), !extent.grid().empty()},
      true);
  if (given != 1) {
    return Invalid("table: got ", given == 0 ? "none" : "several",
                   " of positions, position_ids and grid, want one of them");
  }
  std::vector<Positions>& axes = window.axes;
  if (!extent.grid().empty()) return ResolveGridOfAxes(encoding, extent, window);
  if (extent.has_positions()) {
    const Range positions = RangeOf(extent.positions());
    ATTNBIAS_RETURN_IF_ERROR(CheckWindow("table.positions", positions, kAllPositions));
    if (encoding.prepare == nullptr) return ResolveListed(encoding, positions, window);
    axes.emplace_back(positions);
  } else {
    ATTNBIAS_RETURN_IF_ERROR(ResolvePositionIds(encoding, extent, window));
  }
  const bool has_lists = window.reals != nullptr && !window.reals->front().empty();
  if (!has_lists && axes.size() == 1 && axes[0].is_range()) {
    Set(extent.mutable_positions(), axes[0].hull());
    extent.clear_position_ids();
  }
  return absl::OkStatus();
}

absl::Status ResolveGrid(const Encoding& encoding, v1::GridExtent& extent, Window& window) {
  ATTNBIAS_RETURN_IF_ERROR(Complete("grid", false, Tables(), extent));
  if (const int64_t tokens = encoding.grid.tokens(); tokens > kMaxGridTokens) {
    return Invalid(std::string(encoding.name), ".window: got ", tokens,
                   " tokens, want at most 65536");
  }
  auto& strides = *extent.mutable_query_stride();
  const auto axes = std::ssize(encoding.grid.sides);
  if (!strides.empty() && strides.size() != axes) {
    return Invalid("grid.query_stride: got ", strides.size(), " numbers, want ", axes,
                   ", one for each axis of window");
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

absl::Status ResolveQueries(const Encoding& encoding, v1::PairExtent& extent, Window& window) {
  if (extent.has_query_positions()) {
    ATTNBIAS_RETURN_IF_ERROR(ReadList("pair.query_positions", encoding,
                                      *extent.mutable_query_positions(), window.queries));
    if (!window.queries.is_range()) return absl::OkStatus();
    extent.clear_query_positions();
    extent.set_query_length(window.queries.size());
    extent.set_query_offset(window.queries.hull().begin);
    Set(extent.mutable_queries(), {0, window.queries.size()});
    return absl::OkStatus();
  }
  if (extent.has_key_positions() && !extent.has_query_offset()) {
    return Invalid(
        "pair.query_offset: not set, want the position of query 0 if keys are a list of "
        "positions");
  }
  ATTNBIAS_ASSIGN_OR_RETURN(const int64_t offset, QueryOffsetOf("pair.", extent));
  const Range whole = {0, extent.query_length()};
  const Range queries = extent.has_queries() ? RangeOf(extent.queries()) : whole;
  ATTNBIAS_RETURN_IF_ERROR(CheckWindow("pair.queries", queries, whole));
  window.queries = Positions(Range{queries.begin + offset, queries.end + offset});
  extent.set_query_offset(offset);
  Set(extent.mutable_queries(), queries);
  return absl::OkStatus();
}

absl::Status ResolveKeys(const Encoding& encoding, v1::PairExtent& extent, Window& window) {
  if (extent.has_key_positions()) {
    ATTNBIAS_RETURN_IF_ERROR(
        ReadList("pair.key_positions", encoding, *extent.mutable_key_positions(), window.keys));
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
  const Range whole = {0, extent.key_length()};
  const Range keys = extent.has_keys() ? RangeOf(extent.keys()) : whole;
  ATTNBIAS_RETURN_IF_ERROR(CheckWindow("pair.keys", keys, whole));
  window.keys = Positions(keys);
  window.key_anchor = encoding.anchored_at_last_key ? extent.key_length() - 1 : 0;
  Set(extent.mutable_keys(), keys);
  return absl::OkStatus();
}

// Returns the field to blame for positions outside `domain`.
absl::string_view FieldBeyond(Range domain, const Plan& plan, const v1::TensorSpec& spec) {
  if (spec.has_table()) {
    if (!spec.table().grid().empty()) return "table.grid";
    return spec.table().has_positions() ? "table.positions" : "table.position_ids";
  }
  const v1::PairExtent& pair = spec.pair();
  const bool by_query = plan.encoding().structure == Structure::kDense
                            ? !domain.Contains(plan.window().queries.hull())
                            : plan.hull().begin < domain.begin;
  if (!by_query) return pair.has_key_positions() ? "pair.key_positions" : "pair.key_length";
  if (pair.has_query_positions()) return "pair.query_positions";
  return pair.query_offset() != 0 ? "pair.query_offset" : "pair.query_length";
}

}  // namespace

absl::Status ResolveExtent(const Encoding& encoding, v1::TensorSpec& spec, Window& window) {
  const Structure structure = encoding.structure;
  absl::string_view wanted = "pair";
  if (structure == Structure::kTable) {
    if (spec.has_table()) return ResolveTable(encoding, *spec.mutable_table(), window);
    wanted = "table";
  } else if (structure == Structure::kBlockToeplitz) {
    if (spec.has_grid() || spec.extent_case() == spec.EXTENT_NOT_SET) {
      return ResolveGrid(encoding, *spec.mutable_grid(), window);
    }
    wanted = "grid or none";
  } else if (spec.has_pair()) {
    v1::PairExtent& pair = *spec.mutable_pair();
    ATTNBIAS_RETURN_IF_ERROR(Complete("pair", false, Tables(), pair));
    ATTNBIAS_RETURN_IF_ERROR(ResolveQueries(encoding, pair, window));
    ATTNBIAS_RETURN_IF_ERROR(ResolveKeys(encoding, pair, window));
    return ResolveHeads("pair.heads", encoding, pair, window);
  }
  absl::string_view got = "not set";
  if (spec.has_table()) got = "got table";
  if (spec.has_pair()) got = "got pair";
  if (spec.has_grid()) got = "got grid";
  return Invalid("extent: ", got, ", want ", wanted, ", as ", std::string(encoding.name),
                 " requires");
}

Range AllTokens(const Encoding& encoding, const std::vector<int64_t>& query_stride) {
  return {0, encoding.grid.EveryNth(query_stride).tokens() + (encoding.has_border() ? 1 : 0)};
}

absl::Status CheckDomain(const Plan& plan, const v1::TensorSpec& spec) {
  const Range domain = plan.encoding().domain;
  const Range hull = plan.hull();
  if (domain.Contains(hull)) return absl::OkStatus();
  const bool pairs = plan.encoding().structure == Structure::kToeplitz;
  return absl::OutOfRangeError(
      absl::StrCat(FieldBeyond(domain, plan, spec), ": got ", pairs ? "relative " : "",
                   "positions in ", ToString(hull), ", want positions in ", ToString(domain),
                   ", the domain of ", std::string(plan.encoding().name)));
}

}  // namespace attnbias
