// SPDX-License-Identifier: Apache-2.0
#include "core/engine/planner.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/sha256.h"
#include "core/base/status_macros.h"
#include "core/encoding/checks.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/pair_checks.h"
#include "core/engine/visible_rows.h"
#include "core/tensor/element.h"

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

absl::string_view NameOf(Form form) {
  switch (form) {
    case Form::kTable:
      return "TABLE";
    case Form::kToeplitz:
      return "TOEPLITZ";
    case Form::kKeyRow:
      return "KEY_ROW";
    case Form::kDense:
      return "DENSE";
    case Form::kBlockToeplitz2D:
      return "BLOCK_TOEPLITZ_2D";
  }
  return "";
}

std::string_view PartNameOf(Form form) {
  switch (form) {
    case Form::kTable:
      return "";  // the encoding's own
    case Form::kToeplitz:
      return "diagonals";
    case Form::kKeyRow:
      return "row";
    case Form::kDense:
      return "dense";
    case Form::kBlockToeplitz2D:
      return "block";
  }
  return "";
}

absl::string_view WhyNotCompact(Structure structure, Form compact) {
  if (compact != Form::kDense) return "";
  if (structure == Structure::kToeplitz) return " at listed positions";
  if (structure == Structure::kBlockToeplitz2D) return " in a part of the grid";
  return "";
}

void WritePositions(CanonicalWriter& writer, int field,
                    const Positions& positions) {
  if (positions.is_range()) {
    writer.Integer(field, positions.hull().begin);
    writer.Integer(field + 1, positions.hull().end);
  } else {
    writer.Integers(field + 2, positions.list());
  }
}

}  // namespace

Planner::Planner(TensorSpec spec, int64_t max_tensor_bytes)
    : spec_(std::move(spec)), max_tensor_bytes_(max_tensor_bytes) {}

absl::StatusOr<PlanPtr> Planner::Make() {
  absl::StatusOr<EncodingPtr> encoding = std::visit(
      [this](const auto& spec) { return MakeEncoding(spec, spec_.output); },
      spec_.encoding);
  ATTNBIAS_RETURN_IF_ERROR(encoding.status());
  plan_.encoding_ = *std::move(encoding);
  ATTNBIAS_RETURN_IF_ERROR(ResolveDataType());
  ATTNBIAS_RETURN_IF_ERROR(ResolveExtent());
  ATTNBIAS_RETURN_IF_ERROR(ResolveForm());
  ATTNBIAS_RETURN_IF_ERROR(CheckDomain());
  ATTNBIAS_RETURN_IF_ERROR(ResolveMask());
  ATTNBIAS_RETURN_IF_ERROR(ResolveParts());
  FindFullyMaskedRows();
  NameBytes();
  ResolveSpec();
  return std::make_shared<const Plan>(std::move(plan_));
}

absl::Status Planner::ResolveDataType() {
  const bool indices = plan_.encoding().has_indices();
  plan_.data_type_ = spec_.output.data_type.value_or(indices ? DataType::kI32
                                                             : DataType::kF32);
  if (indices == (plan_.data_type_ == DataType::kI32)) return absl::OkStatus();
  return Invalid("output.data_type: got ",
                 std::string(attnbias::NameOf(plan_.data_type_)), ", want ",
                 indices ? "I32 with values BUCKETS"
                         : "F64, F32, F16 or BF16 with values BIAS");
}

absl::Status Planner::ResolveExtent() {
  const Structure structure = plan_.encoding().structure();
  if (structure == Structure::kTable) {
    if (auto* table = std::get_if<TableExtent>(&spec_.extent)) {
      return ResolveTable(*table);
    }
  } else if (structure == Structure::kBlockToeplitz2D) {
    if (std::holds_alternative<std::monostate>(spec_.extent)) {
      spec_.extent = GridExtent();
    }
    if (auto* grid = std::get_if<GridExtent>(&spec_.extent)) {
      return ResolveGrid(*grid);
    }
  } else if (auto* pair = std::get_if<PairExtent>(&spec_.extent)) {
    return ResolvePair(*pair);
  }
  constexpr absl::string_view kNames[] = {"no extent", "table", "pair", "grid"};
  absl::string_view wanted = "pair";
  if (structure == Structure::kTable) wanted = "table";
  if (structure == Structure::kBlockToeplitz2D) wanted = "grid or none";
  return Invalid("extent: got ", kNames[spec_.extent.index()], ", want ",
                 wanted, ", which is what ",
                 std::string(plan_.encoding().name()), " takes");
}

absl::Status Planner::ResolveTable(TableExtent& extent) {
  plan_.window_.heads = {0, plan_.encoding().lanes()};
  if (extent.positions.has_value() == !extent.position_ids.empty()) {
    return Invalid("table: got ",
                   extent.positions.has_value() ? "both" : "neither",
                   " of positions and position_ids, want one of them");
  }
  std::vector<Positions>& axes = plan_.window_.axes;
  if (extent.positions.has_value()) {
    ATTNBIAS_RETURN_IF_ERROR(
        CheckWindow("table.positions", *extent.positions, kAllPositions));
    axes.emplace_back(*extent.positions);
  } else {
    ATTNBIAS_RETURN_IF_ERROR(ResolvePositionIds(extent.position_ids));
  }
  if (axes.size() == 1 && axes[0].is_range()) {
    extent.positions = axes[0].hull();
    extent.position_ids.clear();
  }
  plan_.axis_ = axes[0];
  return absl::OkStatus();
}

absl::Status Planner::ResolvePositionIds(
    const std::vector<std::vector<int64_t>>& lists) {
  size_t num_axes = 0;
  for (const AxisColumns& run : plan_.encoding().axis_columns()) {
    num_axes = std::max(num_axes, static_cast<size_t>(run.axis + 1));
  }
  if (lists.size() != num_axes) {
    return Invalid("table.position_ids: got ", lists.size(), " lists, want ",
                   num_axes, ", one for each axis");
  }
  std::vector<Positions>& axes = plan_.window_.axes;
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
  if (std::all_of(axes.begin(), axes.end(), same)) axes.resize(1);
  return absl::OkStatus();
}

Range Planner::AllTokens() const {
  const Encoding& encoding = plan_.encoding();
  return {0, encoding.grid().tokens() + (encoding.has_border() ? 1 : 0)};
}

absl::Status Planner::ResolveGrid(GridExtent& extent) {
  const Range whole = AllTokens();
  extent.queries = extent.queries.value_or(whole);
  extent.keys = extent.keys.value_or(whole);
  ATTNBIAS_RETURN_IF_ERROR(CheckWindow("grid.queries", *extent.queries, whole));
  ATTNBIAS_RETURN_IF_ERROR(CheckWindow("grid.keys", *extent.keys, whole));
  plan_.window_.queries = Positions(*extent.queries);
  plan_.window_.keys = Positions(*extent.keys);
  return ResolveHeads("grid.heads", extent.heads);
}

// What an encoding has no numbers for, though the contract allows it.
absl::Status Planner::CheckDomain() const {
  const Range domain = plan_.encoding().domain();
  const Range hull = plan_.hull();
  if (domain.Contains(hull)) return absl::OkStatus();
  const bool pairs = plan_.encoding().structure() == Structure::kToeplitz;
  return absl::OutOfRangeError(absl::StrCat(
      "extent: got ", pairs ? "relative " : "", "positions in ", ToString(hull),
      ", want them in ", ToString(domain), ", which is all that ",
      std::string(plan_.encoding().name()), " has"));
}

absl::Status Planner::ResolvePair(PairExtent& extent) {
  if (!extent.query_positions.has_value()) {
    ATTNBIAS_RETURN_IF_ERROR(
        CheckLength("pair.query_length", extent.query_length));
  }
  if (!extent.key_positions.has_value()) {
    ATTNBIAS_RETURN_IF_ERROR(CheckLength("pair.key_length", extent.key_length));
  }
  ATTNBIAS_RETURN_IF_ERROR(extent.query_positions.has_value()
                               ? ResolveQueryList(extent)
                               : ResolveQueryRange(extent));
  ATTNBIAS_RETURN_IF_ERROR(extent.key_positions.has_value()
                               ? ResolveKeyList(extent)
                               : ResolveKeyRange(extent));
  return ResolveHeads("pair.heads", extent.heads);
}

absl::Status Planner::ResolveQueryList(PairExtent& extent) {
  ATTNBIAS_RETURN_IF_ERROR(
      CheckList("pair.query_positions", *extent.query_positions));
  if (extent.query_length != 0 || extent.queries.has_value() ||
      extent.alignment.has_value() || extent.query_offset.has_value()) {
    return Invalid(
        "pair.query_positions: got query_length, alignment, query_offset or "
        "queries beside it, want the list alone");
  }
  Positions& queries = plan_.window_.queries;
  queries = Positions(*extent.query_positions);
  if (queries.is_range()) {
    extent.query_positions.reset();
    extent.query_length = queries.size();
    extent.query_offset = queries.hull().begin;
    extent.queries = {0, queries.size()};
  }
  return absl::OkStatus();
}

absl::Status Planner::ResolveQueryRange(PairExtent& extent) {
  if (extent.key_positions.has_value() && !extent.query_offset.has_value()) {
    return Invalid(
        "pair.query_offset: not set, want the position of query 0 where "
        "keys are a list of positions");
  }
  const absl::StatusOr<int64_t> offset =
      QueryOffsetOf("pair.", extent.query_length, extent.key_length,
                    extent.alignment, extent.query_offset);
  ATTNBIAS_RETURN_IF_ERROR(offset.status());
  const Range whole = {0, extent.query_length};
  const Range queries = extent.queries.value_or(whole);
  ATTNBIAS_RETURN_IF_ERROR(CheckWindow("pair.queries", queries, whole));
  plan_.window_.queries =
      Positions(Range{queries.begin + *offset, queries.end + *offset});
  extent.alignment.reset();
  extent.query_offset = *offset;
  extent.queries = queries;
  return absl::OkStatus();
}

absl::Status Planner::ResolveKeyList(PairExtent& extent) {
  ATTNBIAS_RETURN_IF_ERROR(
      CheckList("pair.key_positions", *extent.key_positions));
  if (extent.key_length != 0 || extent.keys.has_value()) {
    return Invalid(
        "pair.key_positions: got key_length or keys beside it, want the list "
        "alone");
  }
  if (plan_.encoding().anchored_at_last_key()) {
    return Invalid("pair.key_positions: got a list, want key_length: ",
                   std::string(plan_.encoding().name()),
                   " counts from the last key");
  }
  Positions& keys = plan_.window_.keys;
  keys = Positions(*extent.key_positions);
  if (keys.is_range() && keys.hull().begin >= 0 &&
      keys.hull().end <= kMaxPosition) {
    extent.key_positions.reset();
    extent.key_length = keys.hull().end;
    extent.keys = keys.hull();
  }
  return absl::OkStatus();
}

absl::Status Planner::ResolveKeyRange(PairExtent& extent) {
  const Range whole = {0, extent.key_length};
  const Range keys = extent.keys.value_or(whole);
  ATTNBIAS_RETURN_IF_ERROR(CheckWindow("pair.keys", keys, whole));
  plan_.window_.keys = Positions(keys);
  plan_.window_.key_anchor =
      plan_.encoding().anchored_at_last_key() ? extent.key_length - 1 : 0;
  extent.keys = keys;
  return absl::OkStatus();
}

absl::Status Planner::ResolveHeads(absl::string_view field,
                                   std::optional<Range>& heads) {
  const Range all = {0, plan_.encoding().lanes()};
  plan_.window_.heads = heads.value_or(all);
  if (!plan_.encoding().has_heads()) {
    if (!heads.has_value()) return absl::OkStatus();
    return Invalid(field, ": got ", ToString(*heads),
                   ", want none: the numbers are the same for all heads");
  }
  heads = plan_.window_.heads;
  return CheckWindow(field, *heads, all);
}

// The form in which no number is sent twice.
Form Planner::CompactForm() const {
  const Window& window = plan_.window_;
  switch (plan_.encoding().structure()) {
    case Structure::kTable:
      return Form::kTable;
    case Structure::kToeplitz:
      return window.queries.is_range() && window.keys.is_range()
                 ? Form::kToeplitz
                 : Form::kDense;
    case Structure::kKeyRow:
      return Form::kKeyRow;
    case Structure::kBlockToeplitz2D:
      return window.queries.hull() == AllTokens() &&
                     window.keys.hull() == AllTokens()
                 ? Form::kBlockToeplitz2D
                 : Form::kDense;
    case Structure::kDense:
      return Form::kDense;
  }
  return Form::kDense;
}

absl::Status Planner::ResolveForm() {
  const Window& window = plan_.window_;
  const Structure structure = plan_.encoding().structure();
  const Form compact = CompactForm();
  plan_.form_ = spec_.output.form.value_or(compact);
  const bool dense_too = structure != Structure::kTable;
  if (plan_.form_ != compact && !(plan_.form_ == Form::kDense && dense_too)) {
    return Invalid("output.form: got ", NameOf(plan_.form_), ", want ",
                   NameOf(compact),
                   dense_too && compact != Form::kDense ? " or DENSE" : "",
                   " for ", std::string(plan_.encoding().name()),
                   WhyNotCompact(structure, compact));
  }
  if (plan_.form_ == Form::kToeplitz) {
    const Range queries = window.queries.hull();
    const Range keys = window.keys.hull();
    plan_.axis_ = Positions(
        Range{keys.begin - (queries.end - 1), keys.end - queries.begin});
  } else if (plan_.form_ == Form::kBlockToeplitz2D) {
    plan_.axis_ = Positions(plan_.encoding().domain());
  } else if (structure != Structure::kTable) {
    plan_.axis_ = window.keys;
  }
  return absl::OkStatus();
}

absl::Status Planner::ResolveMask() {
  if (!spec_.output.mask.has_value()) return absl::OkStatus();
  const Mask& mask = *spec_.output.mask;
  ATTNBIAS_RETURN_IF_ERROR(CheckMaskable());
  for (const auto& [field, window] :
       {std::pair("window_left", mask.window_left),
        std::pair("window_right", mask.window_right)}) {
    if (window.has_value() && *window < 0) {
      return Invalid("output.mask.", field, ": got ", *window,
                     ", want an integer of at least 0");
    }
  }
  auto* fill = reinterpret_cast<std::byte*>(&plan_.mask_.fill_bits);
  ATTNBIAS_RETURN_IF_ERROR(
      RoundFill("output.mask.fill_value", mask.fill, plan_.data_type_, fill));
  // -0 names the same tensor as 0.
  if (mask.fill == MaskFill(0.0)) plan_.mask_.fill_bits = 0;
  Range& visible = plan_.mask_.visible;
  // Past the largest distance a window hides nothing.
  const int64_t left = mask.window_left.value_or(-visible.begin);
  const int64_t right =
      mask.causal ? 0 : mask.window_right.value_or(visible.end);
  visible.begin = std::max(visible.begin, -left);
  visible.end = std::min(visible.end, right < visible.end ? right + 1 : right);
  return absl::OkStatus();
}

absl::Status Planner::CheckMaskable() const {
  const Encoding& encoding = plan_.encoding();
  const std::string name(encoding.name());
  if (encoding.has_indices() || encoding.has_columns()) {
    return Invalid("output.mask: got a mask, want none: ", name,
                   " has no attention scores to mask here");
  }
  if (encoding.structure() == Structure::kBlockToeplitz2D) {
    return Invalid("output.mask: got a mask, want none: the tokens of ", name,
                   " are no sequence");
  }
  if (plan_.form_ == Form::kKeyRow) {
    return Invalid(
        "output.mask: got a mask with form KEY_ROW, want form "
        "DENSE: one row cannot hold every query's mask");
  }
  if (plan_.has_border_part()) {
    return Invalid("output.mask: got a mask with form ", NameOf(plan_.form_),
                   ", want form DENSE: a border cannot hold a mask");
  }
  return absl::OkStatus();
}

absl::Status Planner::ResolveParts() {
  const Encoding& encoding = plan_.encoding();
  const Window& window = plan_.window_;
  Part part;
  part.form = plan_.form_;
  part.name = PartNameOf(plan_.form_);
  if (encoding.has_heads()) part.shape.push_back(window.heads.size());
  if (plan_.form_ == Form::kDense) part.shape.push_back(window.queries.size());
  if (plan_.form_ == Form::kBlockToeplitz2D) {
    part.shape.push_back(encoding.grid().block_height());
    part.shape.push_back(encoding.grid().block_width());
  } else {
    part.shape.push_back(plan_.axis_.size());
  }
  if (encoding.has_columns()) {
    part.shape.push_back(encoding.width());
  }
  if (plan_.form_ != Form::kTable) {
    ATTNBIAS_RETURN_IF_ERROR(AddPart(part));
  } else {
    for (const std::string_view name : encoding.part_names()) {
      part.name = name;
      ATTNBIAS_RETURN_IF_ERROR(AddPart(part));
    }
  }
  if (!plan_.has_border_part()) return absl::OkStatus();
  Part border{.name = "border", .form = Form::kTable};
  if (encoding.has_heads()) border.shape.push_back(window.heads.size());
  border.shape.push_back(3);
  return AddPart(border);
}

absl::Status Planner::AddPart(Part part) {
  part.offset = plan_.total_bytes_;
  part.size_bytes = SizeOf(plan_.data_type_);
  bool fits = true;
  for (const int64_t length : part.shape) {
    fits = fits &&
           !__builtin_mul_overflow(part.size_bytes, length, &part.size_bytes);
  }
  if (!fits || part.size_bytes > max_tensor_bytes_ - part.offset) {
    return Invalid("extent: got shape [", absl::StrJoin(part.shape, ", "),
                   "] of ", std::string(attnbias::NameOf(plan_.data_type_)),
                   ", want at most ", max_tensor_bytes_, " bytes in all");
  }
  plan_.total_bytes_ += part.size_bytes;
  plan_.parts_.push_back(std::move(part));
  return absl::OkStatus();
}

void Planner::FindFullyMaskedRows() {
  if (plan_.mask_.masks_nothing()) return;
  plan_.fully_masked_rows_ = RowsWithoutVisibleKeys(
      plan_.window_.queries, plan_.window_.keys, plan_.mask_.visible);
}

void Planner::NameBytes() {
  CanonicalWriter identity(plan_.encoding().name(),
                           plan_.encoding().numerics_version());
  plan_.encoding().WriteIdentity(identity);
  plan_.encoding_fingerprint_ = Sha256Hex(identity.bytes());

  const auto write_mask = [this](CanonicalWriter& writer) {
    if (plan_.mask_.masks_nothing()) return;
    writer.Integer(3, plan_.mask_.visible.begin, ResolvedMask::kAll.begin);
    writer.Integer(4, plan_.mask_.visible.end, ResolvedMask::kAll.end);
    writer.Integer(5, static_cast<int64_t>(plan_.mask_.fill_bits));
  };
  CanonicalWriter band("attnbias.band", 1);
  band.Bytes(1, identity.bytes());
  band.Integer(2, static_cast<int64_t>(plan_.data_type_));
  if (plan_.folds_mask()) write_mask(band);
  plan_.band_key_ = band.bytes();

  CanonicalWriter tensor("attnbias.tensor", 1);
  tensor.Bytes(1, identity.bytes());
  tensor.Integer(2, static_cast<int64_t>(plan_.data_type_));
  write_mask(tensor);
  tensor.Integer(6, static_cast<int64_t>(plan_.form_));
  const Window& window = plan_.window_;
  tensor.Integer(7, window.heads.begin);
  tensor.Integer(8, window.heads.end);
  tensor.Integer(9, window.key_anchor);
  WritePositions(tensor, 13, window.queries);
  WritePositions(tensor, 16, window.keys);
  // Fields 10 to 12, then 19 to 21 and on.
  for (size_t axis = 0; axis < window.axes.size(); ++axis) {
    const int field = axis == 0 ? 10 : 16 + 3 * static_cast<int>(axis);
    WritePositions(tensor, field, window.axes[axis]);
  }
  plan_.fingerprint_ = Sha256Hex(tensor.bytes());
}

void Planner::ResolveSpec() {
  Output& output = spec_.output;
  output.data_type = plan_.data_type_;
  output.form = plan_.form_;
  output.values =
      plan_.encoding().has_indices() ? Values::kBuckets : Values::kBias;
  if (plan_.mask_.masks_nothing()) {
    output.mask.reset();
  } else if (std::holds_alternative<std::monostate>(output.mask->fill)) {
    output.mask->fill = -std::numeric_limits<double>::infinity();
  }
  plan_.resolved_spec_ = std::move(spec_);
}

}  // namespace attnbias
