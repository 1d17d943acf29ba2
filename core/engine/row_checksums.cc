// SPDX-License-Identifier: Apache-2.0
#include "core/engine/row_checksums.h"

namespace attnbias {

RowChecksums::RowChecksums(int64_t row_bytes, int64_t element_bytes)
    : element_bytes_(element_bytes),
      row_elements_(row_bytes / element_bytes),
      row_shift_(row_bytes) {}

uint32_t RowChecksums::Of(const std::byte* row,
                          absl::Span<const std::byte> lane) {
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

}  // namespace attnbias
