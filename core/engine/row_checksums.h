// SPDX-License-Identifier: Apache-2.0
// Checksums of the rows of a dense matrix, which overlap.
//
// Row i of a Toeplitz matrix is row i - 1 moved by one element, so hashing
// every row would hash the same bytes again and again. From the checksums of a
// lane's growing prefixes that of any row inside it follows in constant time:
// crc(ab) = shift_b(crc(a)) ^ crc(b).
#ifndef ATTNBIAS_CORE_ENGINE_ROW_CHECKSUMS_H_
#define ATTNBIAS_CORE_ENGINE_ROW_CHECKSUMS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/checksum/crc32c.h"

namespace attnbias {

class RowChecksums {
 public:
  // All rows are `row_bytes` long and begin a multiple of `element_bytes` after
  // their lane does.
  RowChecksums(int64_t row_bytes, int64_t element_bytes)
      : element_bytes_(element_bytes),
        row_elements_(row_bytes / element_bytes),
        row_shift_(row_bytes) {}

  // CRC-32C of the row at `row`, which lies inside `lane`. Cheap as long as the
  // lane stays the same.
  uint32_t Of(const std::byte* row, absl::Span<const std::byte> lane) {
    if (lane.data() != lane_.data()) {
      lane_ = lane;
      prefixes_.assign(1, 0);
      for (size_t at = 0; at < lane.size(); at += element_bytes_) {
        prefixes_.push_back(
            ExtendCrc32c(prefixes_.back(), lane.data() + at, element_bytes_));
      }
    }
    const int64_t first = (row - lane.data()) / element_bytes_;
    return prefixes_[first + row_elements_] ^ row_shift_(prefixes_[first]);
  }

  // CRC-32C of what `crc` stands for followed by a row of checksum `row_crc`.
  uint32_t Append(uint32_t crc, uint32_t row_crc) const {
    return row_shift_.Combine(crc, row_crc);
  }

 private:
  const int64_t element_bytes_;
  const int64_t row_elements_;
  const Crc32cShift row_shift_;
  absl::Span<const std::byte> lane_;
  // prefixes_[n]: of the lane's first n elements.
  std::vector<uint32_t> prefixes_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENGINE_ROW_CHECKSUMS_H_
