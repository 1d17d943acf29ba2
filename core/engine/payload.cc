// SPDX-License-Identifier: Apache-2.0
#include "core/engine/payload.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace attnbias {
namespace {

// Rows shorter than this are copied: a slice costs more than copying its bytes.
constexpr int64_t kShortestSlice = 4096;
// Below this many rows per lane, prefixes cost more than they save; above this many elements, they
// would take too much time and memory.
constexpr int64_t kFewestRowsForPrefixes = 16;
constexpr int64_t kMostPrefixes = int64_t{1} << 18;

// Bytes produced in one time slice.
constexpr int64_t kBytesAtOnce = int64_t{64} << 10;

// Maximum number of columns in a Window::reals row that is produced in one time slice, since an
// element may take microseconds.
constexpr int64_t kMostColumns = 2048;

std::vector<std::byte> BorderOf(const Plan& plan) {
  const Range heads = plan.window().heads;
  std::vector<std::byte> border(3 * heads.size() * plan.element_bytes());
  plan.encoding().write_border(plan.number_format(), heads, border.data());
  return border;
}

// Returns whether rows contain masked elements that are not masked in their source.
bool MasksRows(const Plan& plan) {
  return plan.form() == v1::FORM_DENSE && !plan.folds_mask() && !plan.mask().masks_nothing();
}

bool HasRowsInBand(const Plan& plan, const NumberSource& source) {
  return source.band != nullptr && plan.key_coordinates().is_range() && !plan.has_many_axes() &&
         !plan.encoding().has_border() && !MasksRows(plan);
}

Chunk ChunkOf(std::shared_ptr<const void> owner, absl::Span<const std::byte> memory, int64_t begin,
              int64_t size) {
  Chunk chunk{.owner = std::move(owner), .memory = memory};
  chunk.pieces.push_back(memory.subspan(begin, size));
  chunk.crc32c = Crc32c(chunk.pieces[0].data(), size);
  return chunk;
}

}  // namespace

Payload::Payload(PlanPtr plan, NumberSource source, const KernelSet& kernels, BandCache* cache,
                 Executor* executor)
    : plan_(std::move(plan)),
      source_(std::move(source)),
      kernels_(kernels),
      cache_(*cache),
      executor_(*executor),
      element_bytes_(plan_->is_by_axis() ? SizeOf(plan_->data_type()) : plan_->element_bytes()),
      row_bytes_(plan_->key_coordinates().size() * element_bytes_),
      rows_in_band_(HasRowsInBand(*plan_, source_)),
      sliceable_(rows_in_band_ && (plan_->rows() == 1 || row_bytes_ >= kShortestSlice)),
      expander_(MakeExpander()) {
  if (sliceable_ && plan_->query_coordinates().size() >= kFewestRowsForPrefixes &&
      plan_->hull().size() <= kMostPrefixes) {
    row_checksums_.emplace(row_bytes_, element_bytes_);
  }
}

bool Payload::IsReadAtOnce() const {
  if (expander_ != nullptr) return false;
  return size_bytes() <= kBytesAtOnce || (sliceable_ && plan_->query_coordinates().size() == 1);
}

void Payload::Read(int64_t offset, int64_t size, Done done) {
  if (std::optional<Chunk> chunk = ReadExpansion(offset, size)) {
    return done(*std::move(chunk));
  }
  if (sliceable_) return done(Slice(offset, size));
  Make(offset, size, std::move(done));
}

Range Payload::ElementsOf(int64_t offset, int64_t size) const {
  return {offset / element_bytes_, (offset + size + element_bytes_ - 1) / element_bytes_};
}

std::unique_ptr<DenseExpander> Payload::MakeExpander() const {
  Accelerator* const accelerator = kernels_.accelerator;
  const BandPtr& band = source_.band;
  if (accelerator == nullptr || band == nullptr || plan_->form() != v1::FORM_DENSE ||
      plan_->encoding().width != 1 ||
      !accelerator->Wants(size_bytes(), /*cpu_writes_nothing=*/sliceable_)) {
    return nullptr;
  }
  const Window& window = plan_->window();
  const Range hull = plan_->hull();
  std::vector<std::byte> border;
  if (plan_->has_border_in_rows()) border = BorderOf(*plan_);
  return accelerator->MakeExpander(
      {.numbers = band->At(window.heads.begin, hull.begin),
       .lanes = window.heads.size(),
       .lane_numbers = hull.size(),
       .lane_stride_bytes = band->lane_bytes(),
       .element_bytes = element_bytes_,
       .query_coordinates = plan_->query_coordinates(),
       .key_coordinates = plan_->key_coordinates() - hull.begin,
       .queries = IndexMap(window.queries),
       .keys = IndexMap(window.keys),
       .visible = MasksRows(*plan_) ? plan_->mask().visible : ResolvedMask::kAll,
       .fill_bits = plan_->mask().fill_bits,
       .border = border.empty() ? nullptr : border.data()});
}

std::optional<Chunk> Payload::ReadExpansion(int64_t offset, int64_t size) {
  if (expander_ == nullptr) return std::nullopt;
  const Range elements = ElementsOf(offset, size);
  const int64_t bytes = elements.size() * element_bytes_;
  absl::StatusOr<ByteBudget::Reservation> reservation =
      cache_.Reserve(Accelerator::HostBytes(bytes), *source_.caller);
  if (reservation.ok()) {
    std::shared_ptr<std::byte> memory = kernels_.accelerator->AllocateHost(bytes);
    if (memory != nullptr && expander_->Make(elements, memory.get())) {
      const absl::Span<const std::byte> made(memory.get(), bytes);
      auto owner = std::make_shared<std::pair<ByteBudget::Reservation, std::shared_ptr<std::byte>>>(
          *std::move(reservation), std::move(memory));
      return ChunkOf(std::move(owner), made, offset - elements.begin * element_bytes_, size);
    }
  }
  expander_ = nullptr;
  return std::nullopt;
}

Payload::Row Payload::RowAt(int64_t index) const {
  const int64_t rows_per_lane = plan_->query_coordinates().size();
  return {.lane = plan_->window().heads.begin + index / rows_per_lane,
          .query = index % rows_per_lane};
}

const std::byte* Payload::InBand(const Row& row) const {
  return source_.band->At(
      row.lane, plan_->key_coordinates().At(0) - plan_->query_coordinates().At(row.query));
}

Chunk Payload::Slice(int64_t offset, int64_t size) {
  const Band& band = *source_.band;
  Chunk chunk;
  chunk.owner = source_.band;
  chunk.memory = {band.buffer.bytes.data(), static_cast<size_t>(band.size_bytes())};
  const Range hull = plan_->hull();
  for (const int64_t end = offset + size; offset < end;) {
    const Row row = RowAt(offset / row_bytes_);
    const int64_t skip = offset % row_bytes_;
    const int64_t length = std::min(row_bytes_ - skip, end - offset);
    const std::byte* data = InBand(row) + skip;
    chunk.pieces.emplace_back(data, length);
    if (row_checksums_.has_value() && length == row_bytes_) {
      const absl::Span<const std::byte> lane(band.At(row.lane, hull.begin),
                                             hull.size() * element_bytes_);
      chunk.crc32c = row_checksums_->Append(chunk.crc32c, row_checksums_->Of(data, lane));
    } else {
      chunk.crc32c = ExtendCrc32c(chunk.crc32c, data, length);
    }
    offset += length;
  }
  return chunk;
}

void Payload::Make(int64_t offset, int64_t size, Done done) const {
  const Range elements = ElementsOf(offset, size);
  absl::StatusOr<BudgetedBuffer> buffer =
      cache_.Allocate(elements.size() * element_bytes_, *source_.caller);
  if (!buffer.ok()) return done(buffer.status());
  auto owner = std::make_shared<BudgetedBuffer>(*std::move(buffer));
  std::byte* const data = owner->bytes.data();
  const auto make = [this, elements, data](int64_t begin, int64_t end) {
    MakeElements({elements.begin + begin, elements.begin + end}, data + begin * element_bytes_);
    return absl::OkStatus();
  };
  auto end = [owner = std::move(owner), skip = offset - elements.begin * element_bytes_, size,
              done = std::move(done)](const absl::Status& status) mutable {
    if (!status.ok()) return done(status);
    const absl::Span<const std::byte> memory(owner->bytes.data(), owner->bytes.size());
    done(ChunkOf(std::move(owner), memory, skip, size));
  };
  ForRanges(executor_, source_.caller, elements.size(), ElementsAtOnce(), make, std::move(end));
}

int64_t Payload::ElementsAtOnce() const {
  if (plan_->window().reals != nullptr && plan_->encoding().width > kMostColumns) {
    return kNonPreemptible;
  }
  if (source_.band == nullptr) {
    // In a payload by axis, one coordinate has many elements.
    return source_.evaluator.numbers->batch() * (plan_->element_bytes() / element_bytes_);
  }
  if (row_bytes_ > kBytesAtOnce) return std::max<int64_t>(kBytesAtOnce / element_bytes_, 1);
  return kBytesAtOnce / row_bytes_ * (row_bytes_ / element_bytes_);
}

void Payload::MakeElements(Range elements, std::byte* out) const {
  if (plan_->is_by_axis()) return MakeByAxis(elements, out);
  const int64_t in_rows = plan_->rows() * plan_->key_coordinates().size();
  MakeRows({std::min(elements.begin, in_rows), std::min(elements.end, in_rows)}, out);
  if (elements.end <= in_rows) return;
  const std::vector<std::byte> border = BorderOf(*plan_);
  const int64_t begin = std::max(elements.begin, in_rows);
  std::memcpy(out + (begin - elements.begin) * element_bytes_,
              border.data() + (begin - in_rows) * element_bytes_,
              (elements.end - begin) * element_bytes_);
}

void Payload::MakeByAxis(Range numbers, std::byte* out) const {
  const std::vector<Positions>& axes = plan_->window().axes;
  std::vector<std::byte> row(plan_->element_bytes());
  std::vector<std::byte> own(plan_->element_bytes());
  for (int64_t i = 0; i < std::ssize(plan_->parts()); ++i) {
    const Part& part = plan_->parts()[i];
    const int64_t axis = i % std::ssize(axes);
    const int64_t lane = i / std::ssize(axes);
    const int64_t columns = part.shape[1];
    const int64_t begin = part.offset / element_bytes_;
    const int64_t end = begin + part.size_bytes / element_bytes_;
    while (numbers.begin < std::min(numbers.end, end)) {
      const int64_t skip = (numbers.begin - begin) % columns;
      const int64_t count = std::min(columns - skip, numbers.size());
      const int64_t position = axes[axis].At((numbers.begin - begin) / columns);
      source_.Copy(lane, {position, position + 1}, 0, row.data());
      std::byte* to = own.data();
      for (const AxisColumns& run : plan_->encoding().axis_columns) {
        if (run.axis != axis) continue;
        const std::byte* const from = row.data() + run.columns.begin * element_bytes_;
        to = std::copy_n(from, run.columns.size() * element_bytes_, to);
      }
      std::memcpy(out, own.data() + skip * element_bytes_, count * element_bytes_);
      numbers.begin += count;
      out += count * element_bytes_;
    }
  }
}

void Payload::MakeRows(Range elements, std::byte* out) const {
  const int64_t row_elements = plan_->key_coordinates().size();
  const IndexMap& queries = plan_->query_coordinates();
  const bool rows_are_even = rows_in_band_ && queries.is_even();
  while (elements.size() > 0) {
    const Row row = RowAt(elements.begin / row_elements);
    const int64_t first = elements.begin % row_elements;
    int64_t count = std::min(row_elements - first, elements.size());
    const Range in_row = {first, first + count};
    if (rows_are_even && count == row_elements) {
      const int64_t rows = std::min(elements.size() / row_elements, queries.size() - row.query);
      kernels_.expand_rows(InBand(row), -queries.step() * element_bytes_, out, rows, row_bytes_);
      count = rows * row_elements;
    } else if (plan_->has_many_axes()) {
      CopyColumns(row, in_row, out);
    } else {
      CopyNumbers(row, in_row, out);
      if (plan_->has_border_in_rows()) SetBorder(row, in_row, out);
      if (MasksRows(*plan_)) HideMasked(row, in_row, out);
    }
    elements.begin += count;
    out += count * element_bytes_;
  }
}

void Payload::CopyNumbers(const Row& row, Range elements, std::byte* out) const {
  const IndexMap keys = plan_->key_coordinates();
  const int64_t query = plan_->query_coordinates().At(row.query);
  const int64_t query_position = plan_->window().queries.At(row.query);
  while (elements.size() > 0) {
    const int64_t count = keys.RunOf(elements);
    const int64_t begin = keys.At(elements.begin) - query;
    source_.Copy(row.lane, {begin, begin + count}, query_position, out);
    elements.begin += count;
    out += count * element_bytes_;
  }
}

// Copies rows of a table with several axes: each column comes from the row for the position on that
// column's axis.
void Payload::CopyColumns(const Row& row, Range elements, std::byte* out) const {
  const int64_t number_bytes = SizeOf(plan_->data_type());
  const Window& window = plan_->window();
  std::vector<std::vector<std::byte>> rows(window.axes.size(),
                                           std::vector<std::byte>(element_bytes_));
  for (int64_t e = elements.begin; e < elements.end; ++e) {
    for (size_t axis = 0; axis < rows.size(); ++axis) {
      const int64_t position = window.PositionOf(e, axis);
      source_.Copy(row.lane, {position, position + 1}, 0, rows[axis].data());
    }
    for (const auto& [axis, columns] : plan_->encoding().axis_columns) {
      const int64_t offset = columns.begin * number_bytes;
      std::memcpy(out + offset, rows[axis].data() + offset, columns.size() * number_bytes);
    }
    out += element_bytes_;
  }
}

void Payload::SetBorder(const Row& row, Range elements, std::byte* out) const {
  enum { kToKeys, kFromQueries, kToItself };
  const Positions& keys = plan_->window().keys;
  const bool is_class_query = plan_->window().queries.At(row.query) == 0;
  Range touched = elements;
  if (!is_class_query && keys.is_range()) {
    const int64_t class_key = -keys.At(0);
    touched = {std::max(class_key, elements.begin), std::min(class_key + 1, elements.end)};
  }
  if (touched.size() <= 0) return;
  std::byte border[3 * sizeof(double)];
  plan_->encoding().write_border(plan_->number_format(), {row.lane, row.lane + 1}, border);
  for (int64_t e = touched.begin; e < touched.end; ++e) {
    const bool is_class_key = keys.At(e) == 0;
    if (!is_class_query && !is_class_key) continue;
    int kind = kToItself;
    if (!is_class_key) kind = kToKeys;
    if (!is_class_query) kind = kFromQueries;
    std::memcpy(out + (e - elements.begin) * element_bytes_, border + kind * element_bytes_,
                element_bytes_);
  }
}

void Payload::HideMasked(const Row& row, Range elements, std::byte* out) const {
  const Window& window = plan_->window();
  const ResolvedMask& mask = plan_->mask();
  const int64_t query = window.queries.At(row.query);
  for (int64_t e = elements.begin; e < elements.end; ++e) {
    const int64_t relative = window.keys.At(e) - query;
    if (relative >= mask.visible.begin && relative < mask.visible.end) continue;
    std::memcpy(out + (e - elements.begin) * element_bytes_, &mask.fill_bits, element_bytes_);
  }
}

}  // namespace attnbias
