// SPDX-License-Identifier: Apache-2.0
// Coordinates of a dense matrix's rows or of its columns.
#ifndef ATTNBIAS_CORE_TENSOR_LINE_H_
#define ATTNBIAS_CORE_TENSOR_LINE_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/tensor/positions.h"
#include "core/tensor/range.h"

namespace attnbias {

// Integers by index. A line takes no memory of its own: a range and the tokens
// of a grid are formulas, and a list stays with its Positions, which outlive
// the line.
class Line {
 public:
  Line() = default;
  explicit Line(Range range) : size_(range.size()), origin_(range.begin) {}
  explicit Line(const Positions& positions)
      : size_(positions.size()),
        origin_(positions.is_range() ? positions.hull().begin : 0),
        list_(positions.is_range() ? nullptr : positions.list().data()) {}

  // `size` times 0.
  static Line Zeros(int64_t size) {
    Line line(Range{0, size});
    line.run_ = 1;
    return line;
  }

  // Tokens [first, first + size) of a grid. Its rows hold `width` consecutive
  // integers, and row r begins at r * stride. Token -1, before the grid, has
  // token 0's integer.
  static Line Tokens(int64_t first, int64_t size, int64_t width,
                     int64_t stride) {
    Line line(Range{0, size});
    line.first_ = first;
    line.run_ = width;
    line.stride_ = stride;
    return line;
  }

  Line operator-(int64_t origin) const {
    Line line = *this;
    line.origin_ -= origin;
    return line;
  }

  int64_t size() const { return size_; }

  int64_t At(int64_t index) const {
    if (list_ != nullptr) return origin_ + list_[index];
    const int64_t n = std::max<int64_t>(first_ + index, 0);
    // Ranges are read without a division.
    if (n < run_) return origin_ + n;
    return origin_ + n / run_ * stride_ + n % run_;
  }

  // Whether each integer is the one before it plus step().
  bool is_even() const {
    return list_ == nullptr && first_ >= 0 &&
           (run_ == 1 || first_ % run_ + size_ <= run_);
  }
  int64_t step() const { return run_ == 1 ? stride_ : 1; }
  bool is_range() const { return is_even() && step() == 1; }

  // How many of `indices`, from the first on, have consecutive integers.
  int64_t RunOf(Range indices) const {
    if (list_ != nullptr) {
      int64_t end = indices.begin + 1;
      while (end < indices.end && list_[end] == list_[end - 1] + 1) ++end;
      return end - indices.begin;
    }
    const int64_t n = first_ + indices.begin;
    if (n < 0) return std::min(-n, indices.size());
    return std::min(run_ - (n < run_ ? n : n % run_), indices.size());
  }

 private:
  int64_t size_ = 0;
  int64_t origin_ = 0;
  // Runs of `run_` consecutive integers begin `stride_` apart. `first_` of all
  // runs' integers come before the line.
  int64_t first_ = 0;
  int64_t run_ = std::numeric_limits<int64_t>::max();
  int64_t stride_ = 0;
  // These integers instead, or null.
  const int64_t* list_ = nullptr;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_TENSOR_LINE_H_
