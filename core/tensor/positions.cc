// SPDX-License-Identifier: Apache-2.0
#include "core/tensor/positions.h"

#include <algorithm>

namespace attnbias {

Positions::Positions(std::vector<int64_t> list) : list_(std::move(list)) {
  const auto [min, max] = std::minmax_element(list_.begin(), list_.end());
  hull_ = {*min, *max + 1};
  const bool consecutive =
      std::adjacent_find(list_.begin(), list_.end(), [](int64_t a, int64_t b) {
        return b != a + 1;
      }) == list_.end();
  if (consecutive) list_.clear();
}

}  // namespace attnbias
