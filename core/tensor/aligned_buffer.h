// SPDX-License-Identifier: Apache-2.0
// Owned bytes on a cache line's border, not initialised.
#ifndef ATTNBIAS_CORE_TENSOR_ALIGNED_BUFFER_H_
#define ATTNBIAS_CORE_TENSOR_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace attnbias {

class AlignedBuffer {
 public:
  static constexpr int64_t kAlignment = 64;

  AlignedBuffer() = default;
  // data() is null when the system has no such memory.
  explicit AlignedBuffer(int64_t size)
      : data_(static_cast<std::byte*>(std::aligned_alloc(
            kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment))),
        size_(size) {}

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  int64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };

  std::unique_ptr<std::byte[], Free> data_;
  int64_t size_ = 0;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_TENSOR_ALIGNED_BUFFER_H_
