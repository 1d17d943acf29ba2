// SPDX-License-Identifier: Apache-2.0
// Views a tensor in TOEPLITZ form as dense matrices.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attnbias/tensor.h"

namespace attnbias {

// Indices [begin, end) of heads, queries or keys.
struct Indices {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
};

namespace internal {

// Returns the extents [heads, queries, keys, columns] of a TOEPLITZ tensor. INVALID_ARGUMENT if the
// tensor has a different form, or a border; DATA_LOSS if its shape contradicts its spec.
absl::StatusOr<std::array<int64_t, 4>> ToeplitzExtents(const v1::TensorHeader& header);

// Returns INVALID_ARGUMENT unless elements of `type` have `size` bytes and are reals (if `real` is
// true) or integers (otherwise).
absl::Status CheckElements(v1::DataType type, size_t size, bool real);

// Returns INVALID_ARGUMENT if `part` is empty or not inside [0, extent).
absl::Status CheckWindow(Indices part, int64_t extent, const char* axis);

}  // namespace internal

// A tensor with shape [heads, queries, keys] or, if it holds vectors, [heads, queries, keys,
// columns]. Only the diagonals are in memory. The layout is strided, like std::layout_stride, with
// a negative stride: element (h, i, j, c) is
//
//   data()[h * stride(0) + i * stride(1) + j * stride(2) + c * stride(3)].
//
// T is double, float or int32_t, or uint16_t (the bits) for F16 and BF16. Copies and windows share
// the tensor's bytes. Indices are not checked.
template <typename T>
class Toeplitz {
 public:
  // Views a tensor. INVALID_ARGUMENT if the tensor has a different form, a border, or elements of a
  // different type; DATA_LOSS if its shape contradicts its spec.
  static absl::StatusOr<Toeplitz> Of(Tensor tensor) {
    const auto extents = internal::ToeplitzExtents(tensor.header());
    if (!extents.ok()) return extents.status();
    constexpr bool kReal = std::is_floating_point_v<T> || sizeof(T) == 2;
    absl::Status status =
        internal::CheckElements(tensor.header().parts(0).data_type(), sizeof(T), kReal);
    if (!status.ok()) return status;
    return Toeplitz(std::move(tensor), *extents);
  }

  int64_t heads() const { return extents_[0]; }
  int64_t queries() const { return extents_[1]; }
  int64_t keys() const { return extents_[2]; }
  // Returns the length of a vector; 1 for scalars.
  int64_t columns() const { return extents_[3]; }

  // Axis 0 is heads, 1 queries, 2 keys, 3 columns. Strides are in elements.
  int64_t extent(int axis) const { return extents_[axis]; }
  int64_t stride(int axis) const {
    const std::array<int64_t, 4> strides = {head_stride_, -columns(), columns(), 1};
    return strides[axis];
  }

  // Returns a pointer to element (0, 0, 0, 0); other elements precede and follow it.
  const T* data() const { return data_; }

  T operator()(int64_t h, int64_t i, int64_t j, int64_t c = 0) const {
    return data_[h * head_stride_ + (j - i) * columns() + c];
  }

  // Returns the elements for one query, [keys] or [keys, columns], without copying them.
  absl::Span<const T> row(int64_t h, int64_t i) const {
    return {data_ + h * head_stride_ - i * columns(), static_cast<size_t>(keys() * columns())};
  }

  // Returns a window. INVALID_ARGUMENT if a range is empty or out of bounds.
  absl::StatusOr<Toeplitz> Window(Indices heads, Indices queries, Indices keys) const {
    const std::array<std::pair<Indices, const char*>, 3> parts = {
        {{heads, "heads"}, {queries, "queries"}, {keys, "keys"}}};
    Toeplitz window = *this;
    for (size_t axis = 0; axis < parts.size(); ++axis) {
      const auto& [part, name] = parts[axis];
      absl::Status status = internal::CheckWindow(part, extents_[axis], name);
      if (!status.ok()) return status;
      window.extents_[axis] = part.size();
      window.data_ += part.begin * stride(static_cast<int>(axis));
    }
    return window;
  }

 private:
  Toeplitz(Tensor tensor, std::array<int64_t, 4> extents)
      : tensor_(std::move(tensor)),
        extents_(extents),
        head_stride_((queries() + keys() - 1) * columns()),
        data_(reinterpret_cast<const T*>(tensor_.part(0).data()) + (queries() - 1) * columns()) {}

  Tensor tensor_;
  std::array<int64_t, 4> extents_;
  int64_t head_stride_;
  const T* data_;
};

}  // namespace attnbias
