// SPDX-License-Identifier: Apache-2.0
// Reads a DENSE payload from an accelerator. While one piece is sent, the
// accelerator makes the next.
#ifndef ATTNBIAS_CORE_ENGINE_EXPANSION_READER_H_
#define ATTNBIAS_CORE_ENGINE_EXPANSION_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/base/caller.h"
#include "core/cache/band.h"
#include "core/cache/band_cache.h"
#include "core/engine/plan.h"
#include "core/engine/row_maker.h"
#include "core/kernel/cuda/accelerator.h"

namespace attnbias {

// Not safe for concurrent use.
class ExpansionReader {
 public:
  // Memory that a device has written to.
  struct Piece {
    ByteBudget::Reservation reservation;
    std::shared_ptr<std::byte> memory;
    Range elements;
  };
  using PiecePtr = std::shared_ptr<const Piece>;

  // Null where the numbers do not come from a band, and where no accelerator
  // expands them. The accelerator and the cache outlive the result.
  static std::unique_ptr<ExpansionReader> Create(const Plan& plan,
                                                 const NumberSource& source,
                                                 bool cpu_writes_nothing,
                                                 Accelerator* accelerator,
                                                 BandCache* cache);

  // Elements of the flat tensor. Null when the accelerator or the budget has
  // given up: the reader is of no more use.
  PiecePtr Read(Range elements);

 private:
  ExpansionReader(int64_t element_bytes, int64_t total_elements,
                  CallerPtr caller, Accelerator* accelerator, BandCache* cache)
      : element_bytes_(element_bytes),
        total_elements_(total_elements),
        caller_(std::move(caller)),
        accelerator_(*accelerator),
        cache_(*cache) {}

  std::shared_ptr<Piece> Begin(Range elements);

  const int64_t element_bytes_;
  const int64_t total_elements_;
  const CallerPtr caller_;
  Accelerator& accelerator_;
  BandCache& cache_;
  // The piece that was begun before it was asked for, or null.
  std::shared_ptr<Piece> next_;
  std::unique_ptr<DenseExpander> expander_;  // goes first: it writes to next_
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENGINE_EXPANSION_READER_H_
