// SPDX-License-Identifier: Apache-2.0
#include "core/engine/row_maker.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace attnbias {

std::vector<std::byte> BorderOf(const Plan& plan) {
  const Range heads = plan.window().heads;
  std::vector<std::byte> border(3 * heads.size() * plan.element_bytes());
  plan.encoding().write_border(plan.number_format(), heads, border.data());
  return border;
}

bool MasksRows(const Plan& plan) {
  return plan.form() == v1::FORM_DENSE && !plan.folds_mask() &&
         !plan.mask().masks_nothing();
}

RowMaker::RowMaker(const Plan* plan, NumberSource source)
    : plan_(*plan),
      source_(std::move(source)),
      element_bytes_(plan->element_bytes()) {}

void RowMaker::Make(const Row& row, Range elements, std::byte* out) const {
  if (plan_.has_many_axes()) {
    CopyColumns(row, elements, out);
  } else {
    CopyNumbers(row, elements, out);
  }
  if (plan_.has_border_in_rows()) SetBorder(row, elements, out);
  if (MasksRows(plan_)) HideMasked(row, elements, out);
}

void RowMaker::MakeByAxis(Range numbers, std::byte* out) const {
  const int64_t number_bytes = SizeOf(plan_.data_type());
  const std::vector<Positions>& axes = plan_.window().axes;
  std::vector<std::byte> row(element_bytes_);
  std::vector<std::byte> own(element_bytes_);
  for (int64_t i = 0; i < std::ssize(plan_.parts()); ++i) {
    const Part& part = plan_.parts()[i];
    const int64_t axis = i % std::ssize(axes);
    const int64_t lane = i / std::ssize(axes);
    const int64_t columns = part.shape[1];
    const int64_t begin = part.offset / number_bytes;
    const int64_t end = begin + part.size_bytes / number_bytes;
    while (numbers.begin < std::min(numbers.end, end)) {
      const int64_t skip = (numbers.begin - begin) % columns;
      const int64_t count = std::min(columns - skip, numbers.size());
      const int64_t position = axes[axis].At((numbers.begin - begin) / columns);
      source_.Copy(lane, {position, position + 1}, 0, row.data());
      std::byte* to = own.data();
      for (const AxisColumns& run : plan_.encoding().axis_columns) {
        if (run.axis != axis) continue;
        const int64_t size = run.columns.size() * number_bytes;
        std::memcpy(to, row.data() + run.columns.begin * number_bytes, size);
        to += size;
      }
      std::memcpy(out, own.data() + skip * number_bytes, count * number_bytes);
      numbers.begin += count;
      out += count * number_bytes;
    }
  }
}

void RowMaker::CopyNumbers(const Row& row, Range elements,
                           std::byte* out) const {
  const Line keys = plan_.key_coordinates();
  const int64_t query = plan_.query_coordinates().At(row.query);
  const int64_t query_position = plan_.window().queries.At(row.query);
  while (elements.size() > 0) {
    const int64_t count = keys.RunOf(elements);
    const int64_t begin = keys.At(elements.begin) - query;
    source_.Copy(row.lane, {begin, begin + count}, query_position, out);
    elements.begin += count;
    out += count * element_bytes_;
  }
}

// Of a table with several axes: each column comes from the row at its own
// axis' position.
void RowMaker::CopyColumns(const Row& row, Range elements,
                           std::byte* out) const {
  const int64_t number_bytes = SizeOf(plan_.data_type());
  const std::vector<AxisColumns>& columns = plan_.encoding().axis_columns;
  const Window& window = plan_.window();
  std::vector<std::vector<std::byte>> rows(window.axes.size());
  for (int64_t e = elements.begin; e < elements.end; ++e) {
    for (size_t axis = 0; axis < rows.size(); ++axis) {
      rows[axis].resize(element_bytes_);
      const int64_t position = window.PositionOf(e, axis);
      source_.Copy(row.lane, {position, position + 1}, 0, rows[axis].data());
    }
    for (const AxisColumns& each : columns) {
      const int64_t offset = each.columns.begin * number_bytes;
      std::memcpy(out + offset, rows[each.axis].data() + offset,
                  each.columns.size() * number_bytes);
    }
    out += element_bytes_;
  }
}

void RowMaker::SetBorder(const Row& row, Range elements, std::byte* out) const {
  enum { kToKeys, kFromQueries, kToItself };
  const Positions& keys = plan_.window().keys;
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
    int kind = kToItself;
    if (!is_class_key) kind = kToKeys;
    if (!is_class_query) kind = kFromQueries;
    std::memcpy(out + (e - elements.begin) * element_bytes_,
                border + kind * element_bytes_, element_bytes_);
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
