// SPDX-License-Identifier: Apache-2.0
// A fetched tensor: header and bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/types/span.h"
#include "attnbias/v1/service.pb.h"

namespace attnbias {

// Returns the size of an element in bytes; 0 for a type that this client does not know.
constexpr int64_t ElementSize(v1::DataType type) {
  switch (type) {
    case v1::DATA_TYPE_F64:
      return 8;
    case v1::DATA_TYPE_F32:
    case v1::DATA_TYPE_I32:
      return 4;
    case v1::DATA_TYPE_F16:
    case v1::DATA_TYPE_BF16:
      return 2;
    default:
      return 0;
  }
}

struct FreeBytes {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};

// Memory from aligned_alloc, freed by its owner.
using AlignedBytes = std::unique_ptr<std::byte[], FreeBytes>;

// A header and its payload, which is little-endian and row-major. The header's parts follow one
// another in the payload without gaps. Copies share the bytes.
class Tensor {
 public:
  // `bytes` must hold header.total_bytes() bytes.
  Tensor(v1::TensorHeader header, std::shared_ptr<const std::byte[]> bytes)
      : header_(std::move(header)), bytes_(std::move(bytes)) {}

  const v1::TensorHeader& header() const { return header_; }

  // Returns the whole payload, aligned to 64 bytes. Valid while this tensor or a copy of it exists.
  absl::Span<const std::byte> bytes() const {
    return {bytes_.get(), static_cast<size_t>(header_.total_bytes())};
  }

  // Returns the bytes of header().parts(index).
  absl::Span<const std::byte> part(int index) const {
    const v1::TensorPart& part = header_.parts(index);
    return bytes().subspan(static_cast<size_t>(part.offset()),
                           static_cast<size_t>(part.size_bytes()));
  }

 private:
  v1::TensorHeader header_;
  std::shared_ptr<const std::byte[]> bytes_;
};

}  // namespace attnbias
