// SPDX-License-Identifier: Apache-2.0
#include "core/engine/row_maker.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace attnbias {
namespace {

// Calls `make` with each run of `elements` at consecutive positions: its
// elements and its first position.
template <typename Make>
void ForEachRun(const Positions& axis, Range elements, Make make) {
  for (int64_t first = elements.begin; first < elements.end;) {
    int64_t last = axis.is_range() ? elements.end : first + 1;
    while (last < elements.end && axis.At(last) == axis.At(last - 1) + 1) {
      ++last;
    }
    make(Range{first, last}, axis.At(first));
    first = last;
  }
}

}  // namespace

bool MasksRows(const Plan& plan) {
  return plan.form() == Form::kDense && !plan.folds_mask() &&
         !plan.mask().masks_nothing();
}

void NumberSource::Copy(int64_t lane, Range span, int64_t query,
                        std::byte* out) const {
  if (band != nullptr) {
    std::memcpy(out, band->At(lane, span.begin),
                span.size() * coordinate_bytes);
    return;
  }
  const int64_t step = evaluator->coordinates_at_once();
  for (int64_t begin = span.begin;
       begin < span.end && !cancellation->cancelled(); begin += step) {
    const Range part = {begin, std::min(begin + step, span.end)};
    evaluator->Fill({{lane, lane + 1}, part, query},
                    out + (begin - span.begin) * coordinate_bytes, 0);
  }
}

RowMaker::RowMaker(const Plan* plan, NumberSource source)
    : plan_(*plan),
      source_(std::move(source)),
      element_bytes_(plan->element_bytes()) {}

void RowMaker::Make(const Row& row, Range elements, std::byte* out) const {
  if (plan_.has_shifted_rows()) {
    MakeShifted(row, elements, out);
  } else {
    switch (plan_.encoding().structure) {
      case Structure::kTable:
        MakeOfAxes(row, elements, out);
        break;
      case Structure::kBlockToeplitz2D:
        MakeOfGrid(row, elements, out);
        break;
      default:
        MakeOfPairs(row, elements, out);
        break;
    }
  }
  if (plan_.has_border_in_rows()) SetBorder(row, elements, out);
  if (MasksRows(plan_)) HideMasked(row, elements, out);
}

void RowMaker::MakeShifted(const Row& row, Range elements,
                           std::byte* out) const {
  const int64_t shift = plan_.ShiftOf(row.query);
  ForEachRun(plan_.axis(), elements, [&](Range run, int64_t position) {
    const int64_t begin = position + shift;
    source_.Copy(row.lane, {begin, begin + run.size()}, 0,
                 out + (run.begin - elements.begin) * element_bytes_);
  });
}

// Of a table whose axes have positions of their own: every column from the row
// of its axis' position.
void RowMaker::MakeOfAxes(const Row& row, Range elements,
                          std::byte* out) const {
  const int64_t number_bytes = SizeOf(plan_.data_type());
  const std::vector<AxisColumns> columns = plan_.encoding().axis_columns;
  const std::vector<Positions>& axes = plan_.window().axes;
  std::vector<std::vector<std::byte>> rows(axes.size());
  for (int64_t e = elements.begin; e < elements.end; ++e) {
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      rows[axis].resize(element_bytes_);
      const int64_t position = axes[axis].At(e);
      source_.Copy(row.lane, {position, position + 1}, 0, rows[axis].data());
    }
    for (const AxisColumns& run : columns) {
      const int64_t offset = run.columns.begin * number_bytes;
      std::memcpy(out + offset, rows[run.axis].data() + offset,
                  run.columns.size() * number_bytes);
    }
    out += element_bytes_;
  }
}

// Keys in one row of the grid stand at consecutive coordinates.
void RowMaker::MakeOfGrid(const Row& row, Range elements,
                          std::byte* out) const {
  const Grid grid = plan_.encoding().grid;
  const int64_t class_tokens = plan_.encoding().has_border() ? 1 : 0;
  const int64_t query = plan_.window().queries.At(row.query) - class_tokens;
  if (query < 0) return;  // a border alone
  const int64_t first_key = plan_.axis().At(0) - class_tokens;
  for (int64_t e = elements.begin; e < elements.end;) {
    const int64_t key = first_key + e;
    if (key < 0) {
      ++e;
      continue;
    }
    const int64_t column = key % grid.width;
    const int64_t count = std::min(grid.width - column, elements.end - e);
    const int64_t begin =
        (key / grid.width - query / grid.width + grid.height - 1) *
            grid.block_width() +
        column - query % grid.width + grid.width - 1;
    source_.Copy(row.lane, {begin, begin + count}, 0,
                 out + (e - elements.begin) * element_bytes_);
    e += count;
  }
}

void RowMaker::MakeOfPairs(const Row& row, Range elements,
                           std::byte* out) const {
  const int64_t query = plan_.window().queries.At(row.query);
  ForEachRun(plan_.axis(), elements, [&](Range run, int64_t position) {
    source_.Copy(row.lane, {position, position + run.size()}, query,
                 out + (run.begin - elements.begin) * element_bytes_);
  });
}

void RowMaker::SetBorder(const Row& row, Range elements, std::byte* out) const {
  enum { kToKeys, kFromQueries, kToItself };
  const Positions& keys = plan_.axis();
  const bool is_class_query = plan_.window().queries.At(row.query) == 0;
  Range touched = elements;
  if (!is_class_query && keys.is_range()) {
    const int64_t class_key = -keys.At(0);
    touched = {std::max(class_key, elements.begin),
               std::min(class_key + 1, elements.end)};
  }
  if (touched.size() <= 0) return;
  std::byte border[3 * sizeof(double)];
  plan_.encoding().write_border(plan_.number_format(), {row.lane, row.lane + 1},
                                border);
  for (int64_t e = touched.begin; e < touched.end; ++e) {
    const bool is_class_key = keys.At(e) == 0;
    if (!is_class_query && !is_class_key) continue;
    int place = kToItself;
    if (!is_class_key) place = kToKeys;
    if (!is_class_query) place = kFromQueries;
    std::memcpy(out + (e - elements.begin) * element_bytes_,
                border + place * element_bytes_, element_bytes_);
  }
}

void RowMaker::HideMasked(const Row& row, Range elements,
                          std::byte* out) const {
  const Window& window = plan_.window();
  const ResolvedMask& mask = plan_.mask();
  const int64_t query = window.queries.At(row.query);
  for (int64_t e = elements.begin; e < elements.end; ++e) {
    const int64_t relative = window.keys.At(e) - query;
    if (relative >= mask.visible.begin && relative < mask.visible.end) continue;
    std::memcpy(out + (e - elements.begin) * element_bytes_, &mask.fill_bits,
                element_bytes_);
  }
}

}  // namespace attnbias
