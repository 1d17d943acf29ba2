// SPDX-License-Identifier: Apache-2.0
// A tensor of form TOEPLITZ as the matrices that it stands for, without making
// them.
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

// A window: indices [begin, end) of heads, queries or keys.
struct Indices {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
};

namespace internal {

// Extents [heads, queries, keys, columns] of a TOEPLITZ tensor.
//
// INVALID_ARGUMENT  it has another form, or a border
// DATA_LOSS         its shape is not that of its spec
absl::StatusOr<std::array<int64_t, 4>> ToeplitzExtents(
    const v1::TensorHeader& header);

// INVALID_ARGUMENT where elements of `type` have other than `size` bytes, or
// are reals and `real` is false, or the other way around.
absl::Status CheckElements(v1::DataType type, size_t size, bool real);

// INVALID_ARGUMENT where `part` is empty or no part of [0, extent).
absl::Status CheckWindow(Indices part, int64_t extent, const char* axis);

}  // namespace internal

// [heads, queries, keys], or with vectors at pairs [heads, queries, keys,
// columns]; in memory there are only the diagonals. Its layout is strided, as
// std::layout_stride has it, with a negative stride: element (h, i, j, c) is
//
//   data()[h * stride(0) + i * stride(1) + j * stride(2) + c * stride(3)].
//
// T is double, float or int32_t; for F16 and BF16 it is uint16_t, their bits.
// Copies and windows share the tensor's bytes. Indices are not checked.
template <typename T>
class Toeplitz {
 public:
  // INVALID_ARGUMENT  the tensor has another form, a border, or other elements
  // DATA_LOSS         its shape is not that of its spec
  static absl::StatusOr<Toeplitz> Of(Tensor tensor) {
    const auto extents = internal::ToeplitzExtents(tensor.header());
    if (!extents.ok()) return extents.status();
    constexpr bool kReal = std::is_floating_point_v<T> || sizeof(T) == 2;
    absl::Status status = internal::CheckElements(
        tensor.header().parts(0).data_type(), sizeof(T), kReal);
    if (!status.ok()) return status;
    return Toeplitz(std::move(tensor), *extents);
  }

  int64_t heads() const { return extents_[0]; }
  int64_t queries() const { return extents_[1]; }
  int64_t keys() const { return extents_[2]; }
  // 1 where a number stands at a pair.
  int64_t columns() const { return extents_[3]; }

  // Axis 0 is heads, 1 queries, 2 keys, 3 columns. Strides count elements.
  int64_t extent(int axis) const { return extents_[axis]; }
  int64_t stride(int axis) const {
    const std::array<int64_t, 4> strides = {head_stride_, -columns(), columns(),
                                            1};
    return strides[axis];
  }

  // Element (0, 0, 0, 0); others lie before it and after it.
  const T* data() const { return data_; }

  T operator()(int64_t h, int64_t i, int64_t j, int64_t c = 0) const {
    return data_[h * head_stride_ + (j - i) * columns() + c];
  }

  // The keys of one query, [keys] or [keys, columns], where they lie.
  absl::Span<const T> row(int64_t h, int64_t i) const {
    return {data_ + h * head_stride_ - i * columns(),
            static_cast<size_t>(keys() * columns())};
  }

  // A part of it. INVALID_ARGUMENT where indices are not its own, or none.
  absl::StatusOr<Toeplitz> Window(Indices heads, Indices queries,
                                  Indices keys) const {
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
        data_(reinterpret_cast<const T*>(tensor_.part(0).data()) +
              (queries() - 1) * columns()) {}

  Tensor tensor_;
  std::array<int64_t, 4> extents_;
  int64_t head_stride_;
  const T* data_;
};

}  // namespace attnbias
