// SPDX-License-Identifier: Apache-2.0
// Produces a payload's bytes in chunks, as they are sent.
//
// If whole rows lie in a band, a chunk is a list of slices of it and nothing is copied: a dense
// matrix is streamed from its diagonals without ever being materialized. Other chunks are computed
// or copied into memory of their own. This is the case if rows are short, partly masked or selected
// by position lists, or if the band is too large to cache. An accelerator produces these chunks if
// that is faster.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/base/executor.h"
#include "core/cache/band_cache.h"
#include "core/cache/byte_budget.h"
#include "core/checksum/crc32c.h"
#include "core/engine/plan.h"
#include "core/kernel/cuda/accelerator.h"

namespace attnbias {

// Source of a payload's values: a band that covers the plan's hull, or an evaluator into which the
// plan's mask is folded.
struct NumberSource {
  BandPtr band;
  BudgetedEvaluator evaluator;
  CallerPtr caller;

  // Writes one lane's values over `span` to `out`. For a DENSE encoding, `query` is the query's
  // position.
  void Copy(int64_t lane, Range span, int64_t query, std::byte* out) const {
    if (band == nullptr) {
      evaluator.numbers->Fill({{lane, lane + 1}, span, query}, out, 0);
    } else {
      std::memcpy(out, band->At(lane, span.begin), span.size() * band->coordinate_bytes);
    }
  }
};

// Bytes of a payload, in order.
struct Chunk {
  // Keeps `memory` alive.
  std::shared_ptr<const void> owner;
  // Contains all pieces.
  absl::Span<const std::byte> memory;
  absl::InlinedVector<absl::Span<const std::byte>, 4> pieces;
  // CRC-32C over the pieces.
  uint32_t crc32c = 0;
};

// Checksums of a dense matrix's overlapping rows.
//
// Row i of a Toeplitz matrix is row i - 1 shifted by one element, so hashing every row would hash
// the same bytes again and again. The checksum of any row can be computed in constant time from the
// checksums of its lane's prefixes: crc(ab) = shift_b(crc(a)) ^ crc(b).
class RowChecksums {
 public:
  // All rows are `row_bytes` long and begin at a multiple of `element_bytes` from the beginning of
  // their lane.
  RowChecksums(int64_t row_bytes, int64_t element_bytes)
      : element_bytes_(element_bytes),
        row_elements_(row_bytes / element_bytes),
        row_shift_(row_bytes) {}

  // Returns the CRC-32C of the row at `row`, which lies inside `lane`. Cheap if the lane is the
  // same as in the previous call.
  uint32_t Of(const std::byte* row, absl::Span<const std::byte> lane) {
    if (lane.data() != lane_.data()) {
      lane_ = lane;
      prefixes_.assign(1, 0);
      for (size_t at = 0; at < lane.size(); at += element_bytes_) {
        prefixes_.push_back(ExtendCrc32c(prefixes_.back(), lane.data() + at, element_bytes_));
      }
    }
    const int64_t first = (row - lane.data()) / element_bytes_;
    return prefixes_[first + row_elements_] ^ row_shift_(prefixes_[first]);
  }

  // Returns the CRC-32C of the bytes covered by `crc` followed by a row with checksum `row_crc`.
  uint32_t Append(uint32_t crc, uint32_t row_crc) const { return row_shift_.Combine(crc, row_crc); }

 private:
  const int64_t element_bytes_;
  const int64_t row_elements_;
  const Crc32cShift row_shift_;
  absl::Span<const std::byte> lane_;
  // prefixes_[n]: checksum of the lane's first n elements.
  std::vector<uint32_t> prefixes_;
};

// Not safe for concurrent use; the band behind it is shared.
class Payload {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<Chunk>)>;

  // `kernels`, `executor` and `cache` must outlive the payload, and the payload must outlive its
  // reads. A chunk's own memory is charged to the budget of `cache`.
  Payload(PlanPtr plan, NumberSource source, const KernelSet& kernels, BandCache* cache,
          Executor* executor);

  int64_t size_bytes() const { return plan_->total_bytes(); }

  // Returns whether the whole payload can be read quickly: either its rows lie in the band without
  // overlapping, so that reading takes no longer than hashing, or it is produced in one time slice.
  bool IsReadAtOnce() const;

  // Passes bytes [offset, offset + size), which must lie inside the payload, to `done`: inside this
  // call or, if producing them takes longer than a time slice, on an executor thread. The next Read
  // must not begin before `done` is called.
  //
  // RESOURCE_EXHAUSTED  the budget has no room for a chunk's own memory
  // CANCELLED           the caller has cancelled
  void Read(int64_t offset, int64_t size, Done done);

 private:
  // One of the Plan::rows() rows: a lane, and the index of a query.
  struct Row {
    int64_t lane = 0;
    int64_t query = 0;
  };

  Row RowAt(int64_t index) const;
  // Returns the elements that overlap these bytes, since only whole elements are produced.
  Range ElementsOf(int64_t offset, int64_t size) const;
  // Returns the beginning of a row that lies in the band.
  const std::byte* InBand(const Row& row) const;
  Chunk Slice(int64_t offset, int64_t size);

  // Returns null unless the values come from a band and an accelerator expands them.
  std::unique_ptr<DenseExpander> MakeExpander() const;
  // Reads from the accelerator; returns nothing if there is none, if it fails, or if the budget has
  // no room.
  std::optional<Chunk> ReadExpansion(int64_t offset, int64_t size);

  void Make(int64_t offset, int64_t size, Done done) const;
  // Returns the `unit` to pass to ForRanges.
  int64_t ElementsAtOnce() const;
  void MakeElements(Range elements, std::byte* out) const;
  // Writes values `numbers` of a payload by axis, counted over all its parts.
  void MakeByAxis(Range numbers, std::byte* out) const;
  void MakeRows(Range elements, std::byte* out) const;
  // The following functions write `elements` of a row to `out`.
  void CopyNumbers(const Row& row, Range elements, std::byte* out) const;
  void CopyColumns(const Row& row, Range elements, std::byte* out) const;
  void SetBorder(const Row& row, Range elements, std::byte* out) const;
  void HideMasked(const Row& row, Range elements, std::byte* out) const;

  const PlanPtr plan_;
  const NumberSource source_;
  const KernelSet& kernels_;
  BandCache& cache_;
  Executor& executor_;
  // Bytes of the smallest unit produced: an element, or a single value of a payload by axis.
  const int64_t element_bytes_;
  const int64_t row_bytes_;
  const bool rows_in_band_;
  const bool sliceable_;
  // Set if many rows of a lane are sliced.
  std::optional<RowChecksums> row_checksums_;
  // Set if an accelerator produces the elements.
  std::unique_ptr<DenseExpander> expander_;
};

}  // namespace attnbias
