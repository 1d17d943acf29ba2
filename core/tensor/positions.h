// SPDX-License-Identifier: Apache-2.0
// Ranges, positions along one axis (consecutive, or an explicit list), and the coordinates of a
// dense matrix's rows or of its columns.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace attnbias {

// A half-open range of integers.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  constexpr int64_t size() const { return end - begin; }
  constexpr bool Contains(Range other) const { return begin <= other.begin && other.end <= end; }
  friend bool operator==(const Range&, const Range&) = default;
};

// Returns the smallest range that contains both non-empty ranges.
constexpr Range Union(Range a, Range b) {
  return {a.begin < b.begin ? a.begin : b.begin, a.end > b.end ? a.end : b.end};
}

// Maximum magnitude of a position.
inline constexpr int64_t kMaxPosition = int64_t{1} << 40;
inline constexpr Range kAllPositions = {-kMaxPosition, kMaxPosition + 1};

// A list of consecutive integers is stored as a range; the two compare equal.
class Positions {
 public:
  Positions() = default;
  explicit Positions(Range range) : hull_(range) {}
  // `list` must not be empty.
  explicit Positions(std::vector<int64_t> list) : list_(std::move(list)) {
    const auto [min, max] = std::ranges::minmax(list_);
    hull_ = {min, max + 1};
    const auto gap =
        std::ranges::adjacent_find(list_, [](int64_t a, int64_t b) { return b != a + 1; });
    if (gap == list_.end()) list_.clear();
  }

  int64_t size() const { return is_range() ? hull_.size() : static_cast<int64_t>(list_.size()); }
  bool is_range() const { return list_.empty(); }
  // Returns the range from the smallest to one past the largest position.
  Range hull() const { return hull_; }
  int64_t At(int64_t index) const { return is_range() ? hull_.begin + index : list_[index]; }
  // Empty for a range.
  const std::vector<int64_t>& list() const { return list_; }

  friend bool operator==(const Positions&, const Positions&) = default;

 private:
  Range hull_;
  std::vector<int64_t> list_;
};

// Positions that are doubles: a list for each axis, all of the same length.
using RealPositions = std::vector<std::vector<double>>;
using RealPositionsPtr = std::shared_ptr<const RealPositions>;

// Maps indices to integers. A map owns no memory: a range and the tokens of a grid are formulas,
// and a list belongs to its Positions, which must outlive the map.
class IndexMap {
 public:
  IndexMap() = default;
  explicit IndexMap(Range range) : size_(range.size()), origin_(range.begin) {}
  explicit IndexMap(const Positions& positions)
      : size_(positions.size()),
        origin_(positions.is_range() ? positions.hull().begin : 0),
        list_(positions.is_range() ? nullptr : positions.list().data()) {}

  static IndexMap Zeros(int64_t size) {
    IndexMap map(Range{0, size});
    map.levels_[0].stride = 0;
    return map;
  }

  // An axis of a grid: `length` indices, whose integers are `stride` apart.
  struct Axis {
    int64_t length;
    int64_t stride;
  };

  // Returns tokens [first, first + size) of a grid with at most three axes, the last of which
  // varies fastest. Token -1, which precedes the grid, maps to 0, as does token 0.
  static IndexMap Tokens(int64_t first, int64_t size, std::span<const Axis> axes) {
    IndexMap map(Range{0, size});
    map.first_ = first;
    auto level = map.levels_.begin();
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      if (axis->length > 1) *level++ = *axis;
    }
    return map;
  }

  IndexMap operator-(int64_t origin) const {
    IndexMap map = *this;
    map.origin_ -= origin;
    return map;
  }

  int64_t size() const { return size_; }

  int64_t At(int64_t index) const {
    if (list_ != nullptr) return origin_ + list_[index];
    const int64_t n = std::max<int64_t>(first_ + index, 0);
    const auto& [run, rows, planes] = levels_;
    // Avoids divisions for ranges.
    if (n < run.length) return origin_ + n * run.stride;
    const int64_t row = n / run.length;
    return origin_ + n % run.length * run.stride + row % rows.length * rows.stride +
           row / rows.length * planes.stride;
  }

  // Returns true if each integer is the previous one plus step().
  bool is_even() const {
    const int64_t run = levels_[0].length;
    return list_ == nullptr && first_ >= 0 && first_ % run + size_ <= run;
  }
  int64_t step() const { return levels_[0].stride; }
  bool is_range() const { return is_even() && step() == 1; }

  // Returns the number of `indices`, starting with the first, that map to consecutive integers.
  int64_t RunOf(Range indices) const {
    if (list_ != nullptr) {
      int64_t end = indices.begin + 1;
      while (end < indices.end && list_[end] == list_[end - 1] + 1) ++end;
      return end - indices.begin;
    }
    const int64_t n = first_ + indices.begin;
    if (n < 0) return std::min(-n, indices.size());
    if (step() != 1) return 1;
    const int64_t run = levels_[0].length;
    return std::min(run - (n < run ? n : n % run), indices.size());
  }

 private:
  int64_t size_ = 0;
  int64_t origin_ = 0;
  // Index of the first token in the map.
  int64_t first_ = 0;
  // Axes longer than 1, fastest first.
  static constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();
  std::array<Axis, 3> levels_ = {{{kEndless, 1}, {kEndless, 0}, {kEndless, 0}}};
  // Null, or the integers of a list.
  const int64_t* list_ = nullptr;
};

}  // namespace attnbias
