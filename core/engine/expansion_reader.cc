// SPDX-License-Identifier: Apache-2.0
#include "core/engine/expansion_reader.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace attnbias {

std::unique_ptr<ExpansionReader> ExpansionReader::Create(
    const Plan& plan, const NumberSource& source, bool cpu_writes_nothing,
    Accelerator* accelerator, BandCache* cache) {
  const BandPtr& band = source.band;
  if (accelerator == nullptr || band == nullptr ||
      plan.form() != v1::FORM_DENSE || plan.encoding().width != 1 ||
      !accelerator->Wants(plan.total_bytes(), cpu_writes_nothing)) {
    return nullptr;
  }
  const Window& window = plan.window();
  const Range hull = plan.hull();
  std::vector<std::byte> border;
  DenseExpansion expansion;
  expansion.numbers = band->At(window.heads.begin, hull.begin);
  expansion.lanes = window.heads.size();
  expansion.lane_numbers = hull.size();
  expansion.lane_stride_bytes = band->lane_bytes();
  expansion.element_bytes = plan.element_bytes();
  expansion.query_coordinates = plan.query_coordinates();
  expansion.key_coordinates = plan.key_coordinates() - hull.begin;
  expansion.queries = Line(window.queries);
  expansion.keys = Line(window.keys);
  expansion.visible =
      MasksRows(plan) ? plan.mask().visible : ResolvedMask::kAll;
  expansion.fill_bits = plan.mask().fill_bits;
  if (plan.has_border_in_rows()) {
    border = BorderOf(plan);
    expansion.border = border.data();
  }
  std::unique_ptr<ExpansionReader> reader(new ExpansionReader(
      expansion.element_bytes, plan.total_bytes() / expansion.element_bytes,
      source.caller, accelerator, cache));
  reader->expander_ = accelerator->MakeExpander(expansion);
  return reader->expander_ == nullptr ? nullptr : std::move(reader);
}

std::shared_ptr<ExpansionReader::Piece> ExpansionReader::Begin(Range elements) {
  const int64_t bytes = elements.size() * element_bytes_;
  absl::StatusOr<ByteBudget::Reservation> reservation =
      cache_.Reserve(bytes, *caller_);
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
