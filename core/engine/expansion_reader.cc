// SPDX-License-Identifier: Apache-2.0
#include "core/engine/expansion_reader.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/engine/row_maker.h"

namespace attnbias {
namespace {

bool IsExpandable(const Plan& plan) {
  return plan.form() == Form::kDense && plan.encoding().width == 1 &&
         plan.encoding().structure != Structure::kDense;
}

IntegerLine LineOf(const Positions& positions) {
  return {.size = positions.size(),
          .begin = positions.At(0),
          .list = positions.is_range() ? nullptr : positions.list().data()};
}

// What the lines of an expansion point at.
struct Lists {
  std::vector<int64_t> queries;
  std::vector<int64_t> keys;
  std::vector<std::byte> border;
};

// Positions minus `origin`, the list among them in `storage`.
IntegerLine Shifted(const Positions& positions, int64_t origin,
                    std::vector<int64_t>& storage) {
  IntegerLine line = LineOf(positions);
  line.begin -= origin;
  if (positions.is_range()) return line;
  storage = positions.list();
  for (int64_t& position : storage) position -= origin;
  line.list = storage.data();
  return line;
}

// Where tokens stand in a grid whose coordinates grow by its block's width from
// row to row. A class token stands nowhere.
IntegerLine GridLine(const Positions& tokens, const Grid& grid,
                     int64_t class_tokens, int64_t origin,
                     std::vector<int64_t>& storage) {
  for (int64_t i = 0; i < tokens.size(); ++i) {
    const int64_t token = tokens.At(i) - class_tokens;
    storage.push_back(token < 0 ? 0
                                : token / grid.width * grid.block_width() +
                                      token % grid.width + origin);
  }
  return {.size = tokens.size(), .list = storage.data()};
}

void SetCoordinates(const Plan& plan, DenseExpansion& expansion, Lists& lists) {
  const Window& window = plan.window();
  const int64_t origin = plan.hull().begin;
  switch (plan.encoding().structure) {
    case Structure::kKeyRow:
      expansion.query_coordinates = {.size = window.queries.size(), .step = 0};
      expansion.key_coordinates =
          Shifted(window.keys, window.key_anchor + origin, lists.keys);
      break;
    case Structure::kBlockToeplitz2D: {
      const Grid grid = plan.encoding().grid;
      const int64_t class_tokens = plan.encoding().has_border() ? 1 : 0;
      const int64_t middle =
          (grid.height - 1) * grid.block_width() + grid.width - 1;
      expansion.query_coordinates =
          GridLine(window.queries, grid, class_tokens, 0, lists.queries);
      expansion.key_coordinates = GridLine(window.keys, grid, class_tokens,
                                           middle - origin, lists.keys);
      break;
    }
    default:
      expansion.query_coordinates = LineOf(window.queries);
      expansion.key_coordinates = Shifted(window.keys, origin, lists.keys);
  }
}

}  // namespace

std::unique_ptr<ExpansionReader> ExpansionReader::Create(
    const Plan& plan, const BandPtr& band, bool cpu_writes_nothing,
    Accelerator* accelerator, BandCache* cache) {
  if (accelerator == nullptr || band == nullptr || !IsExpandable(plan) ||
      !accelerator->Wants(plan.total_bytes(), cpu_writes_nothing)) {
    return nullptr;
  }
  const Window& window = plan.window();
  const Range hull = plan.hull();
  Lists lists;
  DenseExpansion expansion;
  expansion.numbers = band->At(window.heads.begin, hull.begin);
  expansion.lanes = window.heads.size();
  expansion.lane_numbers = hull.size();
  expansion.lane_stride_bytes = band->lane_bytes();
  expansion.element_bytes = plan.element_bytes();
  SetCoordinates(plan, expansion, lists);
  expansion.queries = LineOf(window.queries);
  expansion.keys = LineOf(window.keys);
  expansion.visible =
      MasksRows(plan) ? plan.mask().visible : ResolvedMask::kAll;
  expansion.fill_bits = plan.mask().fill_bits;
  if (plan.has_border_in_rows()) {
    lists.border.resize(3 * expansion.lanes * expansion.element_bytes);
    plan.encoding().write_border(plan.number_format(), window.heads,
                                 lists.border.data());
    expansion.border = lists.border.data();
  }
  std::unique_ptr<ExpansionReader> reader(new ExpansionReader(
      expansion.element_bytes, plan.total_bytes() / expansion.element_bytes,
      accelerator, cache));
  reader->expander_ = accelerator->MakeExpander(expansion);
  return reader->expander_ == nullptr ? nullptr : std::move(reader);
}

std::shared_ptr<ExpansionReader::Piece> ExpansionReader::Begin(Range elements) {
  const int64_t bytes = elements.size() * element_bytes_;
  absl::StatusOr<ByteBudget::Reservation> reservation = cache_.Reserve(bytes);
  if (!reservation.ok()) return nullptr;
  auto piece = std::make_shared<Piece>();
  piece->reservation = *std::move(reservation);
  piece->memory = accelerator_.AllocateHost(bytes);
  piece->elements = elements;
  if (piece->memory == nullptr ||
      !expander_->Begin(elements, piece->memory.get())) {
    return nullptr;
  }
  return piece;
}

ExpansionReader::PiecePtr ExpansionReader::Read(Range elements) {
  std::shared_ptr<Piece> piece = std::exchange(next_, nullptr);
  if (piece != nullptr && piece->elements != elements) {
    if (!expander_->Finish()) return nullptr;
    piece = nullptr;
  }
  if (piece == nullptr) piece = Begin(elements);
  if (piece == nullptr) return nullptr;
  const Range following = {
      elements.end, std::min(elements.end + elements.size(), total_elements_)};
  if (following.size() > 0) next_ = Begin(following);
  // Without the next piece, this one is still good.
  return expander_->Finish() ? piece : nullptr;
}

}  // namespace attnbias
