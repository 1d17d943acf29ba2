// SPDX-License-Identifier: Apache-2.0
#include "client/cli/suggestion.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"

namespace attnbias {
namespace {

// Bounds the time for a distance, the product of the lengths. No name is
// longer.
constexpr size_t kMostLetters = 64;

// Returns the number of letters to insert, delete, replace or swap with a
// neighbour.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<std::vector<size_t>> distance(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        distance[i][j] = i + j;
        continue;
      }
      const size_t replaced = a[i - 1] == b[j - 1] ? 0 : 1;
      distance[i][j] = std::min(
          {distance[i - 1][j] + 1, distance[i][j - 1] + 1, distance[i - 1][j - 1] + replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
      }
    }
  }
  return distance[a.size()][b.size()];
}

}  // namespace

std::string DidYouMean(absl::string_view word, const std::vector<std::string>& names) {
  if (word.size() > kMostLetters) return "";
  const std::string* nearest = nullptr;
  size_t least = std::numeric_limits<size_t>::max();
  for (const std::string& name : names) {
    const size_t distance = Distance(word, name);
    if (distance < least) {
      least = distance;
      nearest = &name;
    }
  }
  if (nearest == nullptr ||
      least > std::max<size_t>(1, std::max(word.size(), nearest->size()) / 3)) {
    return "";
  }
  return absl::StrCat(" (did you mean ", *nearest, "?)");
}

}  // namespace attnbias
