// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/expected.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/reflection.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "attnbias/internal/printable.h"
#include "attnbias/tensor.h"
#include "attnbias/v1/options.pb.h"

namespace attnbias {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr size_t kFingerprintDigits = 64;
constexpr int64_t kBorderLength = 3;
// Length of an axis that the request does not determine. Such an axis has at
// least length 1.
constexpr int64_t kAny = -1;
// Maximum number of listed items that an error names.
constexpr size_t kMostItems = 16;
// Maximum number of axes: NumPy's limit, which no encoding approaches.
constexpr int kMostAxes = 64;

// Positions of queries or keys.
struct Axis {
  int64_t first = 0;
  int64_t last = 0;
  int64_t size = 0;
  // Empty if the positions are consecutive.
  std::vector<int64_t> list = {};
  // The positions, if not all are integers.
  std::vector<double> doubles = {};

  bool is_range() const { return list.empty(); }
  bool operator==(const Axis&) const = default;
};

// A half-open range of positions, or of indices of queries.
struct Span {
  int64_t begin;
  int64_t end;

  bool operator==(const Span&) const = default;
};

struct ExpectedPart {
  std::string name;
  v1::Form form;
  std::vector<int64_t> shape;
  // Key position minus query position of diagonal 0; 0 in other forms.
  int64_t first_relative_position = 0;
  // True if an axis of heads may come first, which only a table of vectors on
  // the server determines.
  bool may_have_heads = false;
};

// Wrap around: requests that servers refuse may hold any number.
int64_t Sum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t Difference(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

Axis RangeOf(int64_t begin, int64_t end) {
  return {.first = begin, .last = Difference(end, 1), .size = Difference(end, begin)};
}

Axis RangeOf(const v1::Range& range) { return RangeOf(range.begin(), range.end()); }

Axis ListOf(v1::PositionList list) {
  // Doubles that are all integers are the same request as integers.
  const auto is_integer = [](double position) {
    return std::fabs(position) <= 0x1p40 && position == std::trunc(position);
  };
  if (!absl::c_all_of(list.doubles(), is_integer)) {
    return {.size = list.doubles_size(), .doubles = {list.doubles().begin(), list.doubles().end()}};
  }
  for (const double position : list.doubles()) {
    list.add_positions(static_cast<int64_t>(position));
  }
  if (list.positions().empty()) return {};
  Axis axis = {.first = list.positions(0),
               .last = *list.positions().rbegin(),
               .size = list.positions_size()};
  for (int i = 0; i < list.positions_size(); ++i) {
    if (list.positions(i) == Sum(axis.first, i)) continue;
    axis.list.assign(list.positions().begin(), list.positions().end());
    break;
  }
  return axis;
}

// Returns an axis of consecutive positions moved by `offset`.
Axis Moved(const Axis& axis, int64_t offset) {
  return {.first = Sum(axis.first, offset), .last = Sum(axis.last, offset), .size = axis.size};
}

// Returns disjoint, ascending spans of positions that see a key.
std::vector<Span> SeeingPositions(const v1::Mask& mask, const Axis& keys) {
  // More than any distance between positions.
  constexpr int64_t kUnlimited = int64_t{1} << 62;
  const int64_t left =
      mask.has_window_left() ? std::min(mask.window_left(), kUnlimited) : kUnlimited;
  const int64_t right = mask.causal()             ? 0
                        : mask.has_window_right() ? std::min(mask.window_right(), kUnlimited)
                                                  : kUnlimited;
  const auto seeing = [&](int64_t first, int64_t last) {
    return Span{Difference(first, right), Sum(Sum(last, left), 1)};
  };
  if (keys.is_range()) return {seeing(keys.first, keys.last)};
  std::vector<int64_t> sorted = keys.list;
  absl::c_sort(sorted);
  std::vector<Span> result;
  for (const int64_t key : sorted) {
    const Span next = seeing(key, key);
    if (!result.empty() && next.begin <= result.back().end) {
      result.back().end = next.end;
    } else {
      result.push_back(next);
    }
  }
  return result;
}

// Returns the queries that see none of the keys.
std::vector<Span> RowsWithoutKeys(const v1::Mask& mask, const Axis& queries, const Axis& keys) {
  const std::vector<Span> seeing = SeeingPositions(mask, keys);
  std::vector<Span> rows;
  if (queries.is_range()) {
    // A loop over the queries could take far longer than the answer is large.
    const int64_t end = Sum(queries.first, queries.size);
    int64_t blind = queries.first;
    const auto add = [&](int64_t next) {
      if (blind >= next) return;
      rows.push_back({Difference(blind, queries.first), Difference(next, queries.first)});
    };
    for (const Span& each : seeing) {
      add(std::min(each.begin, end));
      blind = std::max(blind, each.end);
    }
    add(end);
    return rows;
  }
  for (int64_t i = 0; i < queries.size; ++i) {
    const int64_t query = queries.list[static_cast<size_t>(i)];
    const auto next = std::ranges::upper_bound(seeing, query, {}, &Span::end);
    if (next != seeing.end() && next->begin <= query) continue;
    if (!rows.empty() && rows.back().end == i) {
      ++rows.back().end;
    } else {
      rows.push_back({i, i + 1});
    }
  }
  return rows;
}

absl::string_view NameOf(v1::Form form) {
  switch (form) {
    case v1::FORM_TOEPLITZ:
      return "diagonals";
    case v1::FORM_KEY_ROW:
      return "row";
    case v1::FORM_BLOCK_TOEPLITZ:
      return "block";
    default:
      return "dense";
  }
}

// The properties of an answer that the fields of its request determine.
class Request {
 public:
  // `spec` has an encoding, and outlives this.
  explicit Request(const v1::TensorSpec& spec)
      : spec_(spec),
        encoding_(EncodingOf(spec)),
        type_(*encoding_.GetDescriptor()),
        has_indices_(spec.output().values() == v1::VALUES_BUCKETS ||
                     type_.options().GetExtension(v1::buckets_only)),
        structure_(type_.options().GetExtension(v1::structure)) {
    std::vector<const FieldDescriptor*> fields;
    reflection().ListFields(encoding_, &fields);
    for (const FieldDescriptor* field : fields) {
      const v1::FieldRule& rule = field->options().GetExtension(v1::rule);
      has_border_ |= rule.border_if_set();
      if (!rule.adds_part().empty()) added_parts_.push_back(rule.adds_part());
      Restructure(rule.structure_if_set());
      if (field->is_repeated() || field->enum_type() == nullptr) continue;
      Restructure(
          reflection().GetEnum(encoding_, field)->options().GetExtension(v1::structure_of_value));
    }
    SetAxes();
  }

  v1::DataType data_type() const {
    if (spec_.output().data_type() != v1::DATA_TYPE_UNSPECIFIED) {
      return spec_.output().data_type();
    }
    return has_indices_ ? v1::DATA_TYPE_I32 : v1::DATA_TYPE_F32;
  }

  // Returns true if both request the same window of queries, keys or positions.
  bool HasWindowOf(const Request& other) const {
    return queries_ == other.queries_ && keys_ == other.keys_ && axes_ == other.axes_ &&
           FirstHead() == other.FirstHead() && Strides() == other.Strides();
  }

  // Returns the queries that see no key, counted inside the window.
  std::vector<Span> MaskedRows() const {
    if (structure_ == v1::STRUCTURE_TABLE || !spec_.output().has_mask()) {
      return {};
    }
    return RowsWithoutKeys(spec_.output().mask(), queries_, keys_);
  }

  // Returns the parts in the order of the payload.
  std::vector<ExpectedPart> Parts() const {
    return structure_ == v1::STRUCTURE_TABLE ? Tables() : Pairs();
  }

  // Returns the columns of a table; 0 if the numbers have none.
  int64_t Columns() const {
    std::vector<int64_t> shape;
    AddColumns(&shape);
    return shape.empty() ? 0 : shape.back();
  }

  // Returns how many parts each table has, one per axis of a grid; 0 if a table
  // is one part.
  int AxesOfTable() const {
    return spec_.output().form() == v1::FORM_DENSE ? 0 : spec_.table().grid_size();
  }

 private:
  static const Message& EncodingOf(const v1::TensorSpec& spec) {
    const Reflection& reflection = *spec.GetReflection();
    return reflection.GetMessage(spec,
                                 reflection.GetOneofFieldDescriptor(
                                     spec, spec.GetDescriptor()->FindOneofByName("encoding")));
  }

  void Restructure(v1::Structure structure) {
    if (structure != v1::STRUCTURE_UNSPECIFIED) structure_ = structure;
  }

  void SetAxes() {
    if (structure_ == v1::STRUCTURE_TABLE) {
      const v1::TableExtent& table = spec_.table();
      if (!table.grid().empty()) return SetGridOfAxes(table);
      queries_ =
          table.position_ids().empty() ? RangeOf(table.positions()) : ListOf(table.position_ids(0));
      for (const v1::PositionList& list : table.position_ids()) {
        axes_.push_back(ListOf(list));
      }
      if (absl::c_all_of(axes_, [&](const Axis& axis) { return axis == queries_; })) {
        axes_.clear();
      }
      return;
    }
    if (structure_ == v1::STRUCTURE_BLOCK_TOEPLITZ) {
      const v1::GridExtent& grid = spec_.grid();
      queries_ = grid.has_queries() ? RangeOf(grid.queries()) : RangeOf(0, Tokens(Strides()));
      keys_ = grid.has_keys() ? RangeOf(grid.keys()) : RangeOf(0, Tokens({}));
      return;
    }
    const v1::PairExtent& pair = spec_.pair();
    const int64_t offset = pair.alignment() == v1::ALIGNMENT_END
                               ? Difference(pair.key_length(), pair.query_length())
                               : pair.query_offset();
    queries_ = pair.has_query_positions() ? ListOf(pair.query_positions())
               : pair.has_queries()       ? Moved(RangeOf(pair.queries()), offset)
                                          : Moved(RangeOf(0, pair.query_length()), offset);
    keys_ = pair.has_key_positions() ? ListOf(pair.key_positions())
            : pair.has_keys()        ? RangeOf(pair.keys())
                                     : RangeOf(0, pair.key_length());
  }

  // Sets the axes of a grid, and its tokens as queries.
  void SetGridOfAxes(const v1::TableExtent& table) {
    uint64_t tokens = 1;
    for (int axis = 0; axis < table.grid_size(); ++axis) {
      const int64_t offset = axis < table.grid_offset_size() ? table.grid_offset(axis) : 0;
      axes_.push_back(Moved(RangeOf(0, table.grid(axis)), offset));
      tokens *= static_cast<uint64_t>(table.grid(axis));
    }
    queries_ = RangeOf(0, static_cast<int64_t>(tokens));
  }

  std::vector<ExpectedPart> Tables() const {
    const bool is_dense = !spec_.table().grid().empty() && AxesOfTable() == 0;
    std::vector<int64_t> shape = {queries_.size};
    AddColumns(&shape);
    std::vector<ExpectedPart> parts;
    const auto add = [&](const std::string& name) {
      for (int axis = 0; axis < AxesOfTable(); ++axis) {
        const int64_t length = axes_[static_cast<size_t>(axis)].size;
        parts.push_back({.name = absl::StrCat(name, ".axis", axis),
                         .form = v1::FORM_TABLE,
                         .shape = {length, kAny}});
      }
      if (AxesOfTable() > 0) return;
      parts.push_back(
          {.name = name, .form = is_dense ? v1::FORM_DENSE : v1::FORM_TABLE, .shape = shape});
    };
    const auto& options = type_.options();
    for (int i = 0; i < options.ExtensionSize(v1::parts); ++i) {
      add(options.GetExtension(v1::parts, i));
    }
    if (parts.empty()) add("positions");
    for (const std::string& name : added_parts_) add(name);
    return parts;
  }

  std::vector<ExpectedPart> Pairs() const {
    const v1::Form asked = spec_.output().form();
    const v1::Form form = asked == v1::FORM_UNSPECIFIED ? CompactForm() : asked;
    ExpectedPart part = {.name = std::string(NameOf(form)), .form = form};
    std::vector<int64_t> heads = Heads(&part.may_have_heads);
    part.shape = heads;
    AddInnerAxes(form, &part.shape);
    AddColumns(&part.shape);
    if (form == v1::FORM_TOEPLITZ) {
      part.first_relative_position = Difference(keys_.first, queries_.last);
    }
    std::vector<ExpectedPart> parts = {part};
    if (has_border_ && form != v1::FORM_DENSE) {
      heads.push_back(kBorderLength);
      parts.push_back({.name = "border", .form = v1::FORM_TABLE, .shape = heads});
    }
    return parts;
  }

  v1::Form CompactForm() const {
    switch (structure_) {
      case v1::STRUCTURE_TOEPLITZ:
        if (queries_.is_range() && keys_.is_range()) return v1::FORM_TOEPLITZ;
        return v1::FORM_DENSE;
      case v1::STRUCTURE_KEY_ROW:
        return v1::FORM_KEY_ROW;
      case v1::STRUCTURE_BLOCK_TOEPLITZ:
        if (queries_ == RangeOf(0, Tokens(Strides())) && keys_ == RangeOf(0, Tokens({}))) {
          return v1::FORM_BLOCK_TOEPLITZ;
        }
        return v1::FORM_DENSE;
      default:
        return v1::FORM_DENSE;
    }
  }

  // Appends the axes between heads and columns.
  void AddInnerAxes(v1::Form form, std::vector<int64_t>* shape) const {
    switch (form) {
      case v1::FORM_TOEPLITZ:
        shape->push_back(Difference(Sum(queries_.size, keys_.size), 1));
        break;
      case v1::FORM_KEY_ROW:
        shape->push_back(keys_.size);
        break;
      case v1::FORM_BLOCK_TOEPLITZ:
        for (const int64_t side : Sides()) shape->push_back(2 * side - 1);
        break;
      default:
        shape->push_back(queries_.size);
        shape->push_back(keys_.size);
    }
  }

  // Returns the number or the table that determines the columns of the answer's
  // numbers; null if they have none.
  const FieldDescriptor* ColumnsField() const {
    for (int i = 0; i < type_.field_count(); ++i) {
      const FieldDescriptor& field = *type_.field(i);
      if (field.options().GetExtension(v1::rule).columns() &&
          (field.message_type() == nullptr || reflection().HasField(encoding_, &field))) {
        return &field;
      }
    }
    return nullptr;
  }

  // Appends the last axis of an answer whose numbers have columns.
  void AddColumns(std::vector<int64_t>* shape) const {
    const FieldDescriptor* field = ColumnsField();
    if (has_indices_ || field == nullptr) return;
    if (field->message_type() == nullptr) {
      shape->push_back(Rotated(Number(std::string(field->name()))));
    } else {
      const std::vector<int64_t> table = ShapeOf(TableOf(*field));
      shape->push_back(table.empty() ? kAny : table.back());
    }
  }

  // Returns the columns of a rotary table; of other tables, all columns.
  int64_t Rotated(int64_t columns) const {
    if (!spec_.has_rotary()) return columns;
    const v1::Rotary& rotary = spec_.rotary();
    if (rotary.has_partial_rotary_factor() && !rotary.has_proportional()) {
      const double part = static_cast<double>(columns) * rotary.partial_rotary_factor();
      if (part >= 0 && part < static_cast<double>(columns)) {
        columns = static_cast<int64_t>(part);
      }
    }
    columns -= columns % 2;
    return rotary.layout() == v1::ROTARY_LAYOUT_COMPACT ? columns / 2 : columns;
  }

  // Returns the first axis of an answer that has heads.
  std::vector<int64_t> Heads(bool* may_have_them) const {
    if (has_indices_) return {};
    if (spec_.has_pair() && spec_.pair().has_heads()) {
      return {RangeOf(spec_.pair().heads()).size};
    }
    if (spec_.has_grid() && spec_.grid().has_heads()) {
      return {RangeOf(spec_.grid().heads()).size};
    }
    const FieldDescriptor* field = ColumnsField();
    if (field != nullptr && field->message_type() != nullptr) {
      std::vector<int64_t> table = ShapeOf(TableOf(*field));
      *may_have_them = table.empty();
      // Rows and columns are the last axes.
      table.resize(table.size() < 2 ? 0 : table.size() - 2);
      return table;
    }
    const auto* num_heads = type_.FindFieldByName("num_heads");
    if (num_heads == nullptr) return {};
    int64_t heads = Number("num_heads");
    if (heads == 0) heads = GivenHeads(*num_heads);
    return {heads == 0 ? kAny : heads};
  }

  int64_t FirstHead() const {
    return spec_.has_grid() ? spec_.grid().heads().begin() : spec_.pair().heads().begin();
  }

  // Returns the sides of a grid.
  std::vector<int64_t> Sides() const {
    const FieldDescriptor* window = type_.FindFieldByName("window");
    if (window == nullptr) return {};
    const auto sides = reflection().GetRepeatedFieldRef<int32_t>(encoding_, window);
    return {sides.begin(), sides.end()};
  }

  // Returns the stride of a grid's queries on each axis; empty if all are 1.
  std::vector<int64_t> Strides() const {
    const auto& strides = spec_.grid().query_stride();
    if (absl::c_count(strides, 1) == strides.size()) return {};
    return {strides.begin(), strides.end()};
  }

  // Returns the number of tokens, every n-th of each axis, and the class token.
  int64_t Tokens(const std::vector<int64_t>& strides) const {
    uint64_t tokens = 1;
    size_t axis = 0;
    for (const int64_t side : Sides()) {
      const int64_t stride = axis < strides.size() ? strides[axis] : 1;
      tokens *= static_cast<uint64_t>(stride > 0 ? (side - 1) / stride + 1 : 0);
      ++axis;
    }
    return Sum(static_cast<int64_t>(tokens), has_border_ ? 1 : 0);
  }

  // Returns the heads of the field that replaces num_heads; 0 if that is a
  // table on the server.
  int64_t GivenHeads(const FieldDescriptor& num_heads) const {
    int64_t heads = 0;
    const std::vector<std::string> names = absl::StrSplit(
        num_heads.options().GetExtension(v1::rule).given_by(), '|', absl::SkipEmpty());
    for (const std::string& name : names) {
      heads = std::max(heads, HeadsOf(*type_.FindFieldByName(name)));
    }
    return heads;
  }

  // Returns the length of a list, the columns of a table, or the outputs of a
  // weight or of the last layer.
  int64_t HeadsOf(const FieldDescriptor& field) const {
    const int count = field.is_repeated() ? reflection().FieldSize(encoding_, &field) : 0;
    if (field.message_type() == nullptr) return count;
    if (field.is_repeated() && count == 0) return 0;
    const v1::TableRef& table =
        field.is_repeated() ? static_cast<const v1::MlpLayer&>(
                                  reflection().GetRepeatedMessage(encoding_, &field, count - 1))
                                  .weight()
                            : TableOf(field);
    const std::vector<int64_t> shape = ShapeOf(table);
    if (shape.size() != 2) return 0;
    const bool is_turned = table.layout() == v1::TABLE_LAYOUT_HEADS_BUCKETS;
    const bool is_weight = field.is_repeated() || absl::EndsWith(field.name(), "weight");
    return is_weight != is_turned ? shape[0] : shape[1];
  }

  const v1::TableRef& TableOf(const FieldDescriptor& field) const {
    return static_cast<const v1::TableRef&>(reflection().GetMessage(encoding_, &field));
  }

  // Returns the shape of a table in the request; empty for one on the server.
  static std::vector<int64_t> ShapeOf(const v1::TableRef& table) {
    const auto& shape = table.inline_table().shape();
    return {shape.begin(), shape.end()};
  }

  // Returns the value of a field; 0 if the encoding has no such field.
  int64_t Number(const std::string& name) const {
    const FieldDescriptor* field = type_.FindFieldByName(name);
    return field == nullptr ? 0 : reflection().GetInt32(encoding_, field);
  }

  const Reflection& reflection() const { return *encoding_.GetReflection(); }

  const v1::TensorSpec& spec_;
  const Message& encoding_;
  const Descriptor& type_;
  const bool has_indices_;
  v1::Structure structure_;
  bool has_border_ = false;
  std::vector<std::string> added_parts_;
  Axis queries_;  // of a table, its positions
  Axis keys_;
  std::vector<Axis> axes_;  // of a table, if they differ; of a grid
};

bool HasShape(const v1::TensorPart& part, const ExpectedPart& want) {
  auto length = part.shape().begin();
  const auto rank = static_cast<int>(want.shape.size());
  if (want.may_have_heads && part.shape_size() == rank + 1 && *length > 0) {
    ++length;
  }
  return part.shape().end() - length == rank && absl::c_all_of(want.shape, [&](int64_t wanted) {
           const int64_t got = *length++;
           return got > 0 && (wanted == kAny || got == wanted);
         });
}

std::string Bracketed(std::vector<std::string> items) {
  if (items.size() > kMostItems) {
    items.resize(kMostItems);
    items.push_back("...");
  }
  return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
}

template <typename Lengths>
std::string ShapeAsText(const Lengths& shape) {
  std::vector<std::string> lengths;
  for (const int64_t length : shape) {
    lengths.push_back(length == kAny ? "any" : absl::StrCat(length));
  }
  return Bracketed(lengths);
}

// Returns "F32", or the number of a value that this client does not know.
std::string TypeAsText(v1::DataType type) {
  const std::string& name = v1::DataType_Name(type);
  return name.empty() ? absl::StrCat(type) : std::string(absl::StripPrefix(name, "DATA_TYPE_"));
}

std::string FormAsText(v1::Form form) {
  const std::string& name = v1::Form_Name(form);
  return name.empty() ? absl::StrCat(form) : std::string(absl::StripPrefix(name, "FORM_"));
}

std::string NamesAsText(const v1::TensorHeader& header) {
  std::vector<std::string> names;
  for (const v1::TensorPart& part : header.parts()) {
    names.push_back(internal::Excerpt(part.name()));
  }
  return Bracketed(std::move(names));
}

absl::Status CheckPart(const v1::TensorPart& part, const ExpectedPart& want, v1::DataType type) {
  const auto other = [&](absl::string_view field, const auto& got, const auto& wanted) {
    return absl::DataLossError(
        absl::StrCat("header: part ", want.name, " has ", field, " ", got, ", want ", wanted));
  };
  if (part.data_type() != type) {
    return other("data_type", TypeAsText(part.data_type()), TypeAsText(type));
  }
  if (part.form() != want.form) {
    return other("form", FormAsText(part.form()), FormAsText(want.form));
  }
  if (!HasShape(part, want)) {
    return other("shape", ShapeAsText(part.shape()),
                 absl::StrCat(ShapeAsText(want.shape),
                              want.may_have_heads ? ", perhaps after an axis of heads" : ""));
  }
  if (part.first_relative_position() != want.first_relative_position) {
    return other("first_relative_position", part.first_relative_position(),
                 want.first_relative_position);
  }
  return absl::OkStatus();
}

absl::Status CheckParts(const v1::TensorHeader& header, const Request& request) {
  const std::vector<ExpectedPart> wanted = request.Parts();
  std::vector<std::string> names;
  for (const ExpectedPart& want : wanted) names.push_back(want.name);
  if (!absl::c_equal(header.parts(), names,
                     [](const auto& part, const auto& name) { return part.name() == name; })) {
    return absl::DataLossError(
        absl::StrCat("header.parts: got ", NamesAsText(header), ", want ", Bracketed(names)));
  }
  for (int i = 0; i < header.parts_size(); ++i) {
    ExpectedPart want = wanted[static_cast<size_t>(i)];
    // A border has as many heads as the part before it.
    if (i > 0 && want.shape[0] == kAny) want.shape[0] = header.parts(0).shape(0);
    const absl::Status status = CheckPart(header.parts(i), want, request.data_type());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Compares the axes of columns with the parts of a grid's axes.
absl::Status CheckColumnAxes(const v1::TensorHeader& header, const Request& request) {
  const auto axes = static_cast<size_t>(request.AxesOfTable());
  std::vector<int64_t> columns(axes);
  bool fits = true;
  for (const int32_t axis : header.column_axes()) {
    fits = fits && axis >= 0 && static_cast<size_t>(axis) < axes;
    if (fits) ++columns[static_cast<size_t>(axis)];
  }
  for (size_t i = 0; fits && axes > 0 && i < request.Parts().size(); ++i) {
    fits = header.parts(static_cast<int>(i)).shape(1) == columns[i % axes];
  }
  if (axes > 0) fits = fits && header.column_axes_size() == request.Columns();
  if (fits) return absl::OkStatus();
  return absl::DataLossError("header.column_axes: got other columns, want those of the parts");
}

absl::Status CheckMaskedRows(const v1::TensorHeader& header, const std::vector<Span>& wanted) {
  std::vector<Span> rows;
  for (const v1::Range& each : header.fully_masked_rows()) {
    rows.push_back({each.begin(), each.end()});
  }
  if (rows == wanted) return absl::OkStatus();
  const auto as_text = [](const std::vector<Span>& spans) {
    std::vector<std::string> items;
    for (const Span& each : spans) {
      items.push_back(absl::StrCat("[", each.begin, ", ", each.end, "]"));
    }
    return Bracketed(std::move(items));
  };
  return absl::DataLossError(
      absl::StrCat("header.fully_masked_rows: got ", as_text(rows), ", want ", as_text(wanted)));
}

absl::Status CheckFingerprint(absl::string_view field, const std::string& value) {
  const auto is_digit = [](char c) { return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f'); };
  if (value.size() == kFingerprintDigits && absl::c_all_of(value, is_digit)) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat("header.", field, ": got \"", internal::Excerpt(value),
                                          "\", want 64 lowercase hex digits"));
}

// Lists the first parts of a header for an error.
std::string PartsAsText(const v1::TensorHeader& header) {
  std::vector<std::string> parts;
  for (const v1::TensorPart& part : header.parts()) {
    parts.push_back(absl::StrCat(internal::Excerpt(part.name()), " ", TypeAsText(part.data_type()),
                                 " ", FormAsText(part.form()), " ", ShapeAsText(part.shape()),
                                 " from ", part.first_relative_position()));
  }
  return Bracketed(std::move(parts));
}

bool ShapeFits(const v1::TensorPart& part) {
  int64_t bytes = ElementSize(part.data_type());
  for (const int64_t extent : part.shape()) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) {
      return false;
    }
  }
  return bytes == part.size_bytes();
}

}  // namespace

absl::Status CheckAnswer(const v1::TensorHeader& header, const v1::TensorSpec& spec) {
  absl::Status status = CheckFingerprint("fingerprint", header.fingerprint());
  status.Update(CheckFingerprint("encoding_fingerprint", header.encoding_fingerprint()));
  if (!status.ok()) return status;
  if (spec.encoding_case() == v1::TensorSpec::ENCODING_NOT_SET) return status;
  const Request request(spec);
  status = CheckParts(header, request);
  if (status.ok()) status = CheckColumnAxes(header, request);
  if (!status.ok()) return status;
  const v1::TensorSpec& resolved = header.resolved_spec();
  if (resolved.encoding_case() == spec.encoding_case()) {
    const Request understood(resolved);
    if (understood.HasWindowOf(request) && CheckParts(header, understood).ok()) {
      return CheckMaskedRows(header, request.MaskedRows());
    }
  }
  return absl::DataLossError(
      "header.resolved_spec: got another request, want the one that was made");
}

absl::Status CheckHeader(const v1::TensorHeader& header, const v1::TensorSpec& spec,
                         int64_t max_tensor_bytes) {
  if (header.parts().empty()) {
    return absl::DataLossError("header: it has no parts");
  }
  int64_t end = 0;
  for (const v1::TensorPart& part : header.parts()) {
    if (ElementSize(part.data_type()) == 0) {
      return absl::UnimplementedError(absl::StrCat("header: part ", internal::Excerpt(part.name()),
                                                   " has data_type ", part.data_type(),
                                                   ", which this client does not know"));
    }
    if (part.shape_size() > kMostAxes) {
      return absl::DataLossError(absl::StrCat("header: part ", internal::Excerpt(part.name()),
                                              " has ", part.shape_size(), " axes, want at most ",
                                              kMostAxes));
    }
    if (part.offset() != end || !ShapeFits(part) ||
        __builtin_add_overflow(end, part.size_bytes(), &end)) {
      return absl::DataLossError(absl::StrCat("header: part ", internal::Excerpt(part.name()),
                                              " at byte ", part.offset(), " has shape [",
                                              absl::StrJoin(part.shape(), ", "), "] of ",
                                              v1::DataType_Name(part.data_type()), " in ",
                                              part.size_bytes(), " bytes, which does not add up"));
    }
  }
  if (end != header.total_bytes()) {
    return absl::DataLossError(absl::StrCat("header.total_bytes: got ", header.total_bytes(),
                                            ", want ", end, ", the sum of its parts"));
  }
  if (absl::Status status = CheckAnswer(header, spec); !status.ok()) {
    return status;
  }
  if (end > max_tensor_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("max_tensor_bytes: the tensor has ", end,
                                                     " bytes, this client takes at most ",
                                                     max_tensor_bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckSame(const v1::TensorHeader& got, const v1::TensorHeader& want) {
  if (got.fingerprint() != want.fingerprint()) {
    return absl::DataLossError(absl::StrCat("stream: resumed with fingerprint ",
                                            internal::Excerpt(got.fingerprint()), ", want ",
                                            want.fingerprint()));
  }
  if (!absl::c_equal(got.parts(), want.parts(),
                     &google::protobuf::util::MessageDifferencer::Equals)) {
    return absl::DataLossError(absl::StrCat("stream: resumed with parts ", PartsAsText(got),
                                            ", want ", PartsAsText(want)));
  }
  return absl::OkStatus();
}

}  // namespace attnbias
