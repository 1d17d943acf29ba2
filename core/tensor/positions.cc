// SPDX-License-Identifier: Apache-2.0
#include "core/tensor/positions.h"

#include <algorithm>

namespace attnbias {

Positions::Positions(std::vector<int64_t> list) : list_(std::move(list)) {
  const auto [min, max] = std::ranges::minmax(list_);
  hull_ = {min, max + 1};
  const auto gap = std::ranges::adjacent_find(
      list_, [](int64_t a, int64_t b) { return b != a + 1; });
  if (gap == list_.end()) list_.clear();
}

}  // namespace attnbias
