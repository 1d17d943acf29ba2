// SPDX-License-Identifier: Apache-2.0
#include "core/engine/plan.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/digest.h"
#include "core/base/errors.h"
#include "core/encoding/common/pair_checks.h"
#include "core/encoding/encoding.h"
#include "core/request/rules.h"

namespace attnbias {
namespace {

// Part names by form. Encodings name the parts of tables.
constexpr std::string_view kPartNames[] = {"", "", "diagonals", "row", "dense", "block"};
static_assert(v1::FORM_TOEPLITZ == 2 && v1::FORM_BLOCK_TOEPLITZ == 5);

// Returns the range of the relative positions (key - query) of a window's pairs. Both ends of the
// range occur even if positions are lists.
Range RelativePositions(const Window& window) {
  const Range queries = window.queries.hull();
  const Range keys = window.keys.hull();
  return {keys.begin - (queries.end - 1), keys.end - queries.begin};
}

// Removes mask bounds that hide none of these relative positions.
void DropIdle(Range relative, v1::Mask& mask) {
  if (relative.end <= 1) mask.clear_causal();
  if (mask.has_window_left() && -mask.window_left() <= relative.begin) mask.clear_window_left();
  if (mask.has_window_right() && mask.window_right() >= relative.end - 1) {
    mask.clear_window_right();
  }
}

Range VisibleThrough(const v1::Mask& mask) {
  Range visible = ResolvedMask::kAll;
  if (mask.has_window_left()) visible.begin = std::max(visible.begin, -mask.window_left());
  if (mask.causal()) {
    visible.end = 1;
  } else if (mask.has_window_right() && mask.window_right() < visible.end) {
    visible.end = mask.window_right() + 1;
  }
  return visible;
}

// Returns the positions from which some key is visible, as disjoint, ascending ranges.
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

// Returns the queries q for which no k in `keys` has k - q in `visible`: indices into `queries`, as
// ascending ranges. The run time depends on the lengths of lists, but not of ranges.
std::vector<Range> RowsWithoutVisibleKeys(const Positions& queries, const Positions& keys,
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
    if (blind < hull.end) rows.push_back({blind - hull.begin, hull.size()});
    return rows;
  }
  for (int64_t i = 0; i < queries.size(); ++i) {
    const int64_t query = queries.At(i);
    const auto after = std::ranges::upper_bound(seeing, query, {}, &Range::begin);
    if (after != seeing.begin() && query < std::prev(after)->end) continue;
    if (!rows.empty() && rows.back().end == i) {
      ++rows.back().end;
    } else {
      rows.push_back({i, i + 1});
    }
  }
  return rows;
}

void WriteMask(CanonicalWriter& writer, const ResolvedMask& mask) {
  if (mask.masks_nothing()) return;
  writer.Integer(3, mask.visible.begin, ResolvedMask::kAll.begin);
  writer.Integer(4, mask.visible.end, ResolvedMask::kAll.end);
  writer.Integer(5, static_cast<int64_t>(mask.fill_bits));
}

void WritePositions(CanonicalWriter& writer, int field, const Positions& positions) {
  if (positions.is_range()) {
    writer.Integer(field, positions.hull().begin);
    writer.Integer(field + 1, positions.hull().end);
  } else {
    writer.Integers(field + 2, positions.list());
  }
}

}  // namespace

std::vector<int32_t> Plan::ColumnAxes() const {
  std::vector<int32_t> axes;
  if (!is_by_axis()) return axes;
  for (const AxisColumns& run : encoding_->axis_columns) {
    axes.insert(axes.end(), run.columns.size(), static_cast<int32_t>(run.axis));
  }
  return axes;
}

class Planner {
 public:
  Planner(v1::TensorSpec spec, const Tables& tables, int64_t max_tensor_bytes)
      : spec_(std::move(spec)), tables_(tables), max_tensor_bytes_(max_tensor_bytes) {}

  absl::StatusOr<PlanPtr> Make() {
    ATTNBIAS_ASSIGN_OR_RETURN(plan_.encoding_, MakeEncoding(tables_, spec_));
    ATTNBIAS_RETURN_IF_ERROR(ResolveDataType());
    resolved_ = spec_;
    ATTNBIAS_RETURN_IF_ERROR(ResolveExtent(plan_.encoding(), resolved_, plan_.window_));
    ATTNBIAS_RETURN_IF_ERROR(ResolveForm());
    ResolveCoordinates();
    ATTNBIAS_RETURN_IF_ERROR(CheckDomain(plan_, spec_));
    if (spec_.output().has_mask()) ATTNBIAS_RETURN_IF_ERROR(ResolveMask());
    ATTNBIAS_RETURN_IF_ERROR(ResolveParts());
    NameBytes();
    ResolveSpec();
    return std::make_shared<const Plan>(std::move(plan_));
  }

 private:
  absl::Status ResolveDataType() {
    const bool indices = plan_.encoding().has_indices;
    plan_.data_type_ = indices ? DataType::kI32 : DataType::kF32;
    if (spec_.output().data_type() != v1::DATA_TYPE_UNSPECIFIED) {
      plan_.data_type_ = static_cast<DataType>(spec_.output().data_type());
    }
    if (indices == (plan_.data_type_ == DataType::kI32)) return absl::OkStatus();
    return Invalid("output.data_type: got ", std::string(NameOf(plan_.data_type_)), ", want ",
                   indices ? "I32 with values BUCKETS" : "F64, F32, F16 or BF16 with values BIAS");
  }

  // Returns the form in which each value is sent only once.
  v1::Form CompactForm() const {
    const Window& window = plan_.window_;
    switch (plan_.encoding().structure) {
      case Structure::kTable:
        return v1::FORM_TABLE;
      case Structure::kToeplitz:
        return window.queries.is_range() && window.keys.is_range() ? v1::FORM_TOEPLITZ
                                                                   : v1::FORM_DENSE;
      case Structure::kKeyRow:
        return v1::FORM_KEY_ROW;
      case Structure::kBlockToeplitz:
        return window.queries.hull() == AllTokens(plan_.encoding(), window.query_stride) &&
                       window.keys.hull() == AllTokens(plan_.encoding())
                   ? v1::FORM_BLOCK_TOEPLITZ
                   : v1::FORM_DENSE;
      case Structure::kDense:
        break;
    }
    return v1::FORM_DENSE;
  }

  absl::Status ResolveForm() {
    const Structure structure = plan_.encoding().structure;
    const v1::Form compact = CompactForm();
    const v1::Form given = spec_.output().form();
    plan_.form_ = given == v1::FORM_UNSPECIFIED ? compact : given;
    const bool dense_too = structure != Structure::kTable || plan_.window_.is_grid;
    if (plan_.form_ == compact || (plan_.form_ == v1::FORM_DENSE && dense_too)) {
      return absl::OkStatus();
    }
    const bool is_dense = compact == v1::FORM_DENSE;
    return Invalid("output.form: got ", ShortName(plan_.form_), ", want ", ShortName(compact),
                   dense_too && !is_dense ? " or DENSE" : "", " for ",
                   std::string(plan_.encoding().name),
                   is_dense && structure == Structure::kToeplitz        ? " at listed positions"
                   : is_dense && structure == Structure::kBlockToeplitz ? " in a part of the grid"
                                                                        : "");
  }

  void ResolveCoordinates() {
    const Window& window = plan_.window_;
    const Range query_hull = window.queries.hull();
    const Range key_hull = window.keys.hull();
    IndexMap& queries = plan_.query_coordinates_;
    IndexMap& keys = plan_.key_coordinates_;
    Range& hull = plan_.hull_;
    queries = IndexMap::Zeros(window.queries.size());
    keys = IndexMap(window.keys);
    switch (plan_.encoding().structure) {
      case Structure::kTable:
        queries = IndexMap::Zeros(1);
        keys = TableRows();
        hull = window.axes[0].hull();
        for (const Positions& axis : window.axes) hull = Union(hull, axis.hull());
        break;
      case Structure::kToeplitz:
        queries = IndexMap(window.queries);
        hull = RelativePositions(window);
        break;
      case Structure::kKeyRow:
        keys = keys - window.key_anchor;
        hull = {key_hull.begin - window.key_anchor, key_hull.end - window.key_anchor};
        break;
      case Structure::kBlockToeplitz:
        // All windows of a grid share one band. Token 0 sees itself at the middle coordinate of the
        // band.
        hull = plan_.encoding().domain;
        queries = Tokens(query_hull, window.query_stride) - hull.size() / 2;
        keys = Tokens(key_hull, {});
        break;
      case Structure::kDense:
        hull = Union(query_hull, key_hull);
        break;
    }
    if (plan_.form_ == v1::FORM_DENSE) return;
    queries = IndexMap::Zeros(1);
    if (plan_.form_ == v1::FORM_TOEPLITZ || plan_.form_ == v1::FORM_BLOCK_TOEPLITZ) {
      keys = IndexMap(hull);
    }
  }

  // Returns the coordinates at which token 0 of a grid sees `tokens`, minus the coordinate at which
  // it sees itself.
  IndexMap Tokens(Range tokens, const std::vector<int64_t>& strides) const {
    const Encoding& encoding = plan_.encoding();
    const Grid seen = encoding.grid.EveryNth(strides);
    const std::vector<int64_t> block = encoding.grid.block();
    std::vector<IndexMap::Axis> axes(block.size());
    int64_t digit = 1;
    for (size_t axis = axes.size(); axis-- > 0;) {
      axes[axis] = {seen.sides[axis], strides.empty() ? digit : strides[axis] * digit};
      digit *= block[axis];
    }
    return IndexMap::Tokens(tokens.begin - (encoding.has_border() ? 1 : 0), tokens.size(), axes);
  }

  IndexMap TableRows() const {
    const Window& window = plan_.window_;
    if (!window.is_grid) return IndexMap(window.axes[0]);
    if (!plan_.is_by_axis()) return IndexMap(Range{0, window.rows()});
    int64_t rows = 0;
    for (const Positions& axis : window.axes) rows += axis.size();
    return IndexMap(Range{0, rows});
  }

  absl::Status ResolveMask() {
    const Encoding& encoding = plan_.encoding();
    const auto refuse = [](const auto&... got) {
      return Invalid("output.mask: got a mask", got...);
    };
    if (encoding.has_indices || encoding.has_columns) {
      return refuse(", want none: ", std::string(encoding.name),
                    " has no attention scores to mask here");
    }
    if (encoding.structure == Structure::kBlockToeplitz) {
      return refuse(", want none: the tokens of ", std::string(encoding.name),
                    " form a grid, and only a sequence can be masked");
    }
    v1::Mask& mask = *resolved_.mutable_output()->mutable_mask();
    ResolvedMask& own = plan_.mask_;
    ATTNBIAS_RETURN_IF_ERROR(RoundFill("output.mask.", mask, plan_.data_type_,
                                       reinterpret_cast<std::byte*>(&own.fill_bits)));
    if (plan_.folds_mask()) plan_.band_mask_ = {VisibleThrough(mask), own.fill_bits};
    DropIdle(RelativePositions(plan_.window_), mask);
    own.visible = VisibleThrough(mask);
    if (own.masks_nothing()) return absl::OkStatus();
    if (plan_.form_ == v1::FORM_KEY_ROW) {
      return refuse(" with form KEY_ROW, want form DENSE: one row cannot hold every query's mask");
    }
    if (plan_.has_border_part()) {
      return refuse(" with form ", ShortName(plan_.form_),
                    ", want form DENSE: a border cannot hold a mask");
    }
    plan_.fully_masked_rows_ =
        RowsWithoutVisibleKeys(plan_.window_.queries, plan_.window_.keys, own.visible);
    return absl::OkStatus();
  }

  absl::Status ResolveParts() {
    const Encoding& encoding = plan_.encoding();
    const Window& window = plan_.window_;
    Part part{.name = std::string(kPartNames[plan_.form_]), .form = plan_.form_};
    if (encoding.has_heads) part.shape.push_back(window.heads.size());
    Part border{.name = "border", .form = v1::FORM_TABLE, .shape = part.shape};
    const bool is_table = encoding.structure == Structure::kTable;
    if (plan_.form_ == v1::FORM_DENSE && !is_table) part.shape.push_back(window.queries.size());
    if (plan_.form_ == v1::FORM_BLOCK_TOEPLITZ) {
      const std::vector<int64_t> block = encoding.grid.block();
      part.shape.insert(part.shape.end(), block.begin(), block.end());
    } else {
      part.shape.push_back(plan_.key_coordinates_.size());
    }
    if (encoding.has_columns) part.shape.push_back(encoding.width);
    if (!is_table) {
      ATTNBIAS_RETURN_IF_ERROR(AddPart(part));
    } else {
      for (const std::string_view name : encoding.part_names) {
        part.name = name;
        ATTNBIAS_RETURN_IF_ERROR(plan_.is_by_axis() ? AddAxes(part) : AddPart(part));
      }
    }
    if (!plan_.has_border_part()) return absl::OkStatus();
    border.shape.push_back(3);
    return AddPart(border);
  }

  absl::Status AddAxes(const Part& table) {
    const std::vector<Positions>& axes = plan_.window_.axes;
    for (int64_t axis = 0; axis < std::ssize(axes); ++axis) {
      Part part = table;
      absl::StrAppend(&part.name, ".axis", axis);
      part.shape = {axes[axis].size(), plan_.encoding().ColumnsOf(axis)};
      ATTNBIAS_RETURN_IF_ERROR(AddPart(std::move(part)));
    }
    return absl::OkStatus();
  }

  absl::Status AddPart(Part part) {
    part.offset = plan_.total_bytes_;
    part.size_bytes = SizeOf(plan_.data_type_);
    bool fits = true;
    for (const int64_t length : part.shape) {
      fits = fits && !__builtin_mul_overflow(part.size_bytes, length, &part.size_bytes);
    }
    if (!fits || part.size_bytes > max_tensor_bytes_ - part.offset) {
      return Invalid("extent: got shape [", absl::StrJoin(part.shape, ", "), "] of ",
                     std::string(NameOf(plan_.data_type_)), ", want at most ", max_tensor_bytes_,
                     " bytes in total");
    }
    plan_.total_bytes_ += part.size_bytes;
    plan_.parts_.push_back(std::move(part));
    return absl::OkStatus();
  }

  void NameBytes() {
    const std::string& identity = plan_.encoding().identity;
    plan_.encoding_fingerprint_ = Sha256Hex(identity);

    CanonicalWriter band("attnbias.band", 1);
    band.Bytes(1, identity);
    band.Integer(2, static_cast<int64_t>(plan_.data_type_));
    WriteMask(band, plan_.band_mask_);
    plan_.band_key_ = band.bytes();

    CanonicalWriter tensor("attnbias.tensor", 1);
    tensor.Bytes(1, identity);
    tensor.Integer(2, static_cast<int64_t>(plan_.data_type_));
    WriteMask(tensor, plan_.mask_);
    tensor.Integer(6, static_cast<int64_t>(plan_.form_));
    const Window& window = plan_.window_;
    tensor.Integer(7, window.heads.begin);
    tensor.Integer(8, window.heads.end);
    tensor.Integer(9, window.key_anchor);
    WritePositions(tensor, 13, window.queries);
    WritePositions(tensor, 16, window.keys);
    // Fields 10 to 12, then 19 to 21 and so on.
    for (size_t axis = 0; axis < window.axes.size(); ++axis) {
      const int field = axis == 0 ? 10 : 16 + 3 * static_cast<int>(axis);
      WritePositions(tensor, field, window.axes[axis]);
    }
    tensor.Integer(28, window.is_grid ? 1 : 0, 0);
    if (!window.query_stride.empty()) tensor.Integers(29, window.query_stride);
    for (size_t axis = 0; window.reals != nullptr && axis < window.reals->size(); ++axis) {
      tensor.Reals(30 + static_cast<int>(axis), (*window.reals)[axis]);
    }
    plan_.fingerprint_ = Sha256Hex(tensor.bytes());
  }

  void ResolveSpec() {
    v1::Output& output = *resolved_.mutable_output();
    output.set_data_type(static_cast<v1::DataType>(plan_.data_type_));
    output.set_form(plan_.form_);
    output.set_values(plan_.encoding().has_indices ? v1::VALUES_BUCKETS : v1::VALUES_BIAS);
    if (plan_.mask_.masks_nothing()) {
      output.clear_mask();
    } else if (output.mask().fill_case() == v1::Mask::FILL_NOT_SET) {
      output.mutable_mask()->set_fill_value(-std::numeric_limits<double>::infinity());
    }
    plan_.resolved_spec_ = std::move(resolved_);
  }

  v1::TensorSpec spec_;
  v1::TensorSpec resolved_;
  const Tables& tables_;
  const int64_t max_tensor_bytes_;
  Plan plan_;
};

absl::StatusOr<PlanPtr> MakePlan(v1::TensorSpec spec, const Tables& tables,
                                 int64_t max_tensor_bytes) {
  return Planner(std::move(spec), tables, max_tensor_bytes).Make();
}

}  // namespace attnbias
