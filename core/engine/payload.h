// SPDX-License-Identifier: Apache-2.0
// The bytes of an answer, made in pieces as they are sent.
//
// Where whole rows lie in a band, a chunk is a list of slices of it. Nothing is
// copied: a dense matrix is streamed from its diagonals without ever existing.
// Other chunks are made in memory of their own: rows that are short, picked by
// position lists, partly masked, or of a band too large to keep. An accelerator
// makes them where it is worth it.
#ifndef ATTNBIAS_CORE_ENGINE_PAYLOAD_H_
#define ATTNBIAS_CORE_ENGINE_PAYLOAD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/base/executor.h"
#include "core/cache/band.h"
#include "core/cache/band_cache.h"
#include "core/engine/expansion_reader.h"
#include "core/engine/plan.h"
#include "core/engine/row_checksums.h"
#include "core/engine/row_maker.h"

namespace attnbias {

// Bytes of a payload, in order.
struct Chunk {
  // Keeps `memory` alive.
  std::shared_ptr<const void> owner;
  // All pieces lie in it.
  absl::Span<const std::byte> memory;
  absl::InlinedVector<absl::Span<const std::byte>, 4> pieces;
  // CRC-32C over the pieces.
  uint32_t crc32c = 0;
};

// Not safe for concurrent use; the band behind it is shared.
class Payload {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<Chunk>)>;

  // `kernels`, `executor` and `cache`, from whose budget a chunk's own memory
  // is taken, outlive the payload. It outlives what it reads.
  Payload(PlanPtr plan, NumberSource source, const KernelSet& kernels,
          BandCache* cache, Executor* executor);

  int64_t size_bytes() const { return plan_->total_bytes(); }

  // Whether reading everything takes no longer than hashing it: it lies in the
  // band, in rows that do not overlap, or it is no more than is made in a turn.
  bool IsReadAtOnce() const;

  // Gives bytes [offset, offset + size), which lie inside the payload, to
  // `done`: inside this call or, where they take longer than a turn, on a
  // thread of the executor. The next Read comes after that.
  //
  // RESOURCE_EXHAUSTED  the budget has no room for a chunk's own memory
  // CANCELLED           whoever asked for the payload has cancelled
  void Read(int64_t offset, int64_t size, Done done);

 private:
  Row RowAt(int64_t index) const;
  // The elements that these bytes are part of: only whole ones are made.
  Range ElementsOf(int64_t offset, int64_t size) const;
  // The beginning of a row that lies in the band.
  const std::byte* InBand(const Row& row) const;
  Chunk Slice(int64_t offset, int64_t size);
  // From the accelerator; nothing when there is none, or when it has given up.
  std::optional<Chunk> ReadExpansion(int64_t offset, int64_t size);
  void Make(int64_t offset, int64_t size, Done done) const;
  // Elements that take no longer than one, or are copied in no time.
  int64_t ElementsAtOnce() const;
  void MakeElements(Range elements, std::byte* out) const;
  void MakeRows(Range elements, std::byte* out) const;

  const PlanPtr plan_;
  const RowMaker row_maker_;
  const KernelSet& kernels_;
  BandCache& cache_;
  Executor& executor_;
  // Bytes of what is made whole: an element, or a number of an answer by axis.
  const int64_t element_bytes_;
  const int64_t row_bytes_;
  const bool rows_in_band_;
  const bool sliceable_;
  // Where an accelerator makes the elements.
  std::unique_ptr<ExpansionReader> expansion_reader_;
  // Only where many rows of a lane are sliced.
  std::optional<RowChecksums> row_checksums_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENGINE_PAYLOAD_H_
