// SPDX-License-Identifier: Apache-2.0
// A half-open range of integers.
#pragma once

#include <cstdint>

namespace attnbias {

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

}  // namespace attnbias
