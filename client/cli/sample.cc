// SPDX-License-Identifier: Apache-2.0
#include "client/cli/sample.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/report.h"
#include "client/cli/spec_fields.h"

namespace attnbias {
namespace {

// Positions along a side of a matrix.
class Axis {
 public:
  Axis(int64_t begin, int64_t size) : begin_(begin), size_(size) {}
  Axis(const v1::Range& range, int64_t offset)
      : begin_(range.begin() + offset), size_(range.end() - range.begin()) {}
  explicit Axis(const v1::PositionList& list) : size_(list.positions_size()), list_(&list) {}

  int64_t size() const { return size_; }
  int64_t at(int64_t index) const {
    return list_ == nullptr ? begin_ + index : list_->positions(static_cast<int>(index));
  }

  // Returns the smallest and the largest position.
  std::pair<int64_t, int64_t> Bounds() const {
    if (list_ == nullptr) return {begin_, begin_ + size_ - 1};
    const auto [least, most] = absl::c_minmax_element(list_->positions());
    return {*least, *most};
  }

  // Returns `count` evenly spread positions.
  std::vector<int64_t> Sample(int64_t count) const {
    std::vector<int64_t> positions;
    for (int64_t i = 0; i < count; ++i) {
      positions.push_back(at(Spread(i, count, size_)));
    }
    return positions;
  }

 private:
  int64_t begin_ = 0;
  int64_t size_;
  const v1::PositionList* list_ = nullptr;
};

// Returns the number of characters in the longest position.
int WidthOf(const Axis& axis) {
  const auto [least, most] = axis.Bounds();
  return static_cast<int>(std::max(absl::StrCat(least).size(), absl::StrCat(most).size()));
}

struct Axes {
  Axis rows;
  Axis columns;
};

// Returns true if any position is a fraction. The rows are then labeled by index.
bool HasReals(const v1::TableExtent& table) {
  return absl::c_any_of(table.position_ids(),
                        [](const auto& list) { return !list.doubles().empty(); });
}

// Returns true if a part over query-key pairs holds vectors, whose columns are its last axis.
bool HoldsVectors(const v1::TensorHeader& header, const v1::TensorPart& part) {
  if (!header.resolved_spec().has_pair()) return false;
  const int heads = HeadsOf(header.resolved_spec()) != nullptr ? 1 : 0;
  const int numbers = part.form() == v1::FORM_DENSE ? 2 : 1;
  return part.shape_size() > heads + numbers;
}

Axis QueriesOf(const v1::PairExtent& pair) {
  return pair.has_query_positions() ? Axis(pair.query_positions())
                                    : Axis(pair.queries(), pair.query_offset());
}

Axis KeysOf(const v1::PairExtent& pair) {
  return pair.has_key_positions() ? Axis(pair.key_positions()) : Axis(pair.keys(), 0);
}

Axes AxesOf(const v1::TensorHeader& header, const v1::TensorPart& part) {
  const v1::TensorSpec& spec = header.resolved_spec();
  if (spec.has_grid()) {
    return {.rows = Axis(spec.grid().queries(), 0), .columns = Axis(spec.grid().keys(), 0)};
  }
  const int rank = part.shape_size();
  const int64_t columns = rank > 0 ? part.shape(rank - 1) : 0;
  if (HoldsVectors(header, part)) {
    return {.rows = Axis(part.first_relative_position(), part.shape(rank - 2)),
            .columns = Axis(0, columns)};
  }
  if (spec.has_pair()) {
    return {.rows = QueriesOf(spec.pair()), .columns = KeysOf(spec.pair())};
  }
  const v1::TableExtent& table = spec.table();
  if (!table.grid().empty() && rank > 0 && !part.name().empty()) {
    // Part names end in the axis number.
    const int axis = part.name().back() - '0';
    const bool is_known = axis >= 0 && axis < table.grid_offset_size();
    return {.rows = Axis(is_known ? table.grid_offset(axis) : 0, part.shape(0)),
            .columns = Axis(0, columns)};
  }
  if (HasReals(table)) {
    return {.rows = Axis(0, rank > 0 ? part.shape(0) : 0), .columns = Axis(0, columns)};
  }
  return {.rows = table.position_ids_size() > 0 ? Axis(table.position_ids(0))
                                                : Axis(table.positions(), 0),
          .columns = Axis(0, columns)};
}

absl::StatusOr<int> FindDrawnPart(const v1::TensorHeader& header, const std::string& name) {
  std::vector<std::string> names;
  for (int i = 0; i < header.parts_size(); ++i) {
    const std::string& each = header.parts(i).name();
    // A class token's values are drawn in the token's own row and column.
    if (each == "border") continue;
    if (name.empty() || name == each) return i;
    names.push_back(each);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--part: got ", name, ", want one of ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<std::optional<int64_t>> FindDrawnHead(const v1::TensorSpec& resolved,
                                                     std::optional<int64_t> head) {
  const v1::Range* heads = HeadsOf(resolved);
  if (heads == nullptr) {
    if (!head.has_value()) return std::nullopt;
    return absl::InvalidArgumentError(
        "--head: got a value, want none: the numbers are the same for all "
        "heads");
  }
  if (head.value_or(0) < heads->end()) return head.value_or(0);
  return absl::InvalidArgumentError(
      absl::StrCat("--head: got ", *head, ", want an integer in [0, ", heads->end(), ")"));
}

// Returns true if a mask hides a key from a query.
bool Hides(const v1::Mask& mask, int64_t query, int64_t key) {
  return (mask.causal() && key > query) ||
         (mask.has_window_left() && key < query - mask.window_left()) ||
         (mask.has_window_right() && key > query + mask.window_right());
}

std::string TitleOf(const std::string& encoding, const v1::TensorHeader& whole,
                    const Matrix& matrix, const v1::TensorPart& part, Size drawn) {
  const v1::TensorSpec& spec = whole.resolved_spec();
  std::string title = encoding;
  if (whole.parts_size() > 1 && spec.has_table()) {
    absl::StrAppend(&title, ", ", whole.parts(matrix.part).name());
  }
  if (matrix.head.has_value()) {
    absl::StrAppend(&title, ", head ", *matrix.head, " of ", HeadsOf(spec)->end());
  }
  const char* rows = spec.has_grid()   ? "query tokens"
                     : matrix.square   ? "queries"
                     : spec.has_pair() ? "relative positions"
                                       : "positions";
  const char* columns = spec.has_grid() ? "key tokens" : matrix.square ? "keys" : "columns";
  absl::StrAppend(&title, ", ",
                  ShortName(*v1::DataType_descriptor(), v1::DataType_Name(part.data_type())), ": ",
                  rows, " down, ", columns, " across, ", drawn.rows, " x ", drawn.columns);
  if (drawn == matrix.size) return title;
  return absl::StrCat(title, " of ", matrix.size.rows, " x ", matrix.size.columns);
}

}  // namespace

absl::StatusOr<Matrix> MatrixOf(const v1::TensorHeader& whole, std::optional<int64_t> head,
                                const std::string& part) {
  const auto index = FindDrawnPart(whole, part);
  if (!index.ok()) return index.status();
  const auto found = FindDrawnHead(whole.resolved_spec(), head);
  if (!found.ok()) return found.status();
  const v1::TensorPart& drawn = whole.parts(*index);
  const bool vectors = HoldsVectors(whole, drawn);
  if (vectors && drawn.form() == v1::FORM_DENSE) {
    return absl::InvalidArgumentError(
        "--query-positions, --key-positions: got a list, want --query-length "
        "and --key-length: vectors are drawn over relative positions");
  }
  const Axes axes = AxesOf(whole, drawn);
  if (axes.rows.size() < 1 || axes.columns.size() < 1) {
    return absl::DataLossError("header: a part without elements");
  }
  return Matrix{.part = *index,
                .size = {.rows = axes.rows.size(), .columns = axes.columns.size()},
                .square = !whole.resolved_spec().has_table() && !vectors,
                .head = *found,
                .label_width = WidthOf(axes.rows)};
}

std::vector<v1::TensorSpec> RequestsFor(const v1::TensorSpec& spec, const v1::TensorHeader& whole,
                                        const Matrix& matrix, Size shown) {
  const v1::TensorSpec& resolved = whole.resolved_spec();
  const Axes axes = AxesOf(whole, whole.parts(matrix.part));
  v1::TensorSpec request = spec;
  const auto set_head = [&](v1::Range* heads) {
    heads->set_begin(*matrix.head);
    heads->set_end(*matrix.head + 1);
  };
  const auto list = [](const Axis& axis, int64_t count, v1::PositionList* positions) {
    const std::vector<int64_t> sample = axis.Sample(count);
    positions->mutable_positions()->Assign(sample.begin(), sample.end());
  };
  if (resolved.has_grid()) {
    request.mutable_output()->set_form(v1::FORM_DENSE);
    *request.mutable_grid() = resolved.grid();
    if (matrix.head) set_head(request.mutable_grid()->mutable_heads());
    return {request};
  }
  if (resolved.has_table()) {
    const v1::TableExtent& table = resolved.table();
    if (!table.grid().empty() || HasReals(table) || shown.rows == matrix.size.rows) {
      return {request};
    }
    v1::TensorSpec listed = request;
    listed.mutable_table()->Clear();
    list(axes.rows, shown.rows, listed.mutable_table()->add_position_ids());
    return {listed, request};
  }
  v1::PairExtent* pair = request.mutable_pair();
  *pair = resolved.pair();
  if (matrix.head) set_head(pair->mutable_heads());
  // The compact form holds each vector once.
  if (!matrix.square) return {request};
  request.mutable_output()->set_form(v1::FORM_DENSE);
  if (shown.rows < matrix.size.rows) {
    list(axes.rows, shown.rows, pair->mutable_query_positions());
    pair->clear_query_length();
    pair->clear_query_offset();
    pair->clear_queries();
  }
  if (shown.columns == matrix.size.columns) return {request};
  v1::TensorSpec listed = request;
  list(axes.columns, shown.columns, listed.mutable_pair()->mutable_key_positions());
  listed.mutable_pair()->clear_key_length();
  listed.mutable_pair()->clear_keys();
  return {listed, request};
}

absl::StatusOr<HeatMap> HeatMapOf(const std::string& encoding, const Tensor& tensor,
                                  const v1::TensorHeader& whole, const Matrix& matrix,
                                  Size pixels) {
  const v1::TensorHeader& header = tensor.header();
  const absl::Status contradicts =
      absl::DataLossError("header: got a shape that contradicts its spec");
  if (matrix.part >= header.parts_size()) return contradicts;
  const v1::TensorPart& part = header.parts(matrix.part);
  const Axes axes = AxesOf(header, part);
  const int64_t bytes = ElementSize(part.data_type());
  int64_t elements;
  if (axes.rows.size() < 1 || axes.columns.size() < 1 ||
      __builtin_mul_overflow(axes.rows.size(), axes.columns.size(), &elements) ||
      part.size_bytes() / bytes != elements) {
    return contradicts;
  }
  const Size drawn = {.rows = std::min(pixels.rows, axes.rows.size()),
                      .columns = std::min(pixels.columns, axes.columns.size())};
  HeatMap map = {.title = TitleOf(encoding, whole, matrix, part, drawn),
                 .rows = axes.rows.Sample(pixels.rows),
                 .columns = axes.columns.Sample(pixels.columns),
                 .left_out = "not finite"};
  const v1::Mask& mask = header.resolved_spec().output().mask();
  const std::byte* data = tensor.part(matrix.part).data();
  for (int64_t i = 0; i < pixels.rows; ++i) {
    const int64_t row = Spread(i, pixels.rows, axes.rows.size());
    for (int64_t j = 0; j < pixels.columns; ++j) {
      if (Hides(mask, map.rows[static_cast<size_t>(i)], map.columns[static_cast<size_t>(j)])) {
        map.left_out = "masked";
        map.numbers.push_back(NAN);
        continue;
      }
      const int64_t column = Spread(j, pixels.columns, axes.columns.size());
      const int64_t at = row * axes.columns.size() + column;
      map.numbers.push_back(ReadElement(part.data_type(), data + at * bytes));
    }
  }
  return map;
}

}  // namespace attnbias
