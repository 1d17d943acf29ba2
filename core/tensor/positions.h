// SPDX-License-Identifier: Apache-2.0
// Ranges, and positions along one axis: consecutive, or an explicit list.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
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

// Returns the smallest range that contains both, which are not empty.
constexpr Range Union(Range a, Range b) {
  return {a.begin < b.begin ? a.begin : b.begin, a.end > b.end ? a.end : b.end};
}

// Maximum magnitude of a position.
inline constexpr int64_t kMaxPosition = int64_t{1} << 40;
inline constexpr Range kAllPositions = {-kMaxPosition, kMaxPosition + 1};

// A list of consecutive numbers is stored as a range; the two compare equal.
class Positions {
 public:
  Positions() = default;
  explicit Positions(Range range) : hull_(range) {}
  // `list` is not empty.
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

}  // namespace attnbias
