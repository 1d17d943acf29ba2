// SPDX-License-Identifier: Apache-2.0
#include "attnbias/toeplitz.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/src/header.h"

namespace attnbias::internal {

absl::StatusOr<std::array<int64_t, 4>> ToeplitzExtents(const v1::TensorHeader& header) {
  if (header.parts_size() != 1 || header.parts(0).form() != v1::FORM_TOEPLITZ) {
    const auto name = [](std::string* text, const v1::TensorPart& part) {
      absl::StrAppend(text, part.name());
    };
    return absl::InvalidArgumentError(absl::StrCat("tensor: got ",
                                                   absl::StrJoin(header.parts(), " and ", name),
                                                   ", want diagonals only (form TOEPLITZ)"));
  }
  const v1::PairExtent& pair = header.resolved_spec().pair();
  const auto [queries, keys] = QueriesAndKeys(pair);
  std::vector<int64_t> axes(header.parts(0).shape().begin(), header.parts(0).shape().end());
  // The resolved request distinguishes [heads, diagonals] from [diagonals, columns].
  int64_t heads = 1;
  if (pair.has_heads() && !axes.empty()) {
    heads = axes.front();
    axes.erase(axes.begin());
  }
  const int64_t columns = axes.size() == 2 ? axes.back() : 1;
  if (axes.empty() || axes.size() > 2 || queries < 1 || keys < 1 ||
      axes.front() - queries != keys - 1) {
    return absl::DataLossError(absl::StrCat("header: got diagonals of shape [",
                                            absl::StrJoin(header.parts(0).shape(), ", "), "] for ",
                                            queries, " queries and ", keys, " keys"));
  }
  return std::array<int64_t, 4>{heads, queries, keys, columns};
}

absl::Status CheckElements(v1::DataType type, size_t size, bool real) {
  const bool is_real = type != v1::DATA_TYPE_I32;
  if (ElementSize(type) == static_cast<int64_t>(size) && is_real == real) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("tensor: got elements of ", v1::DataType_Name(type), ", want ",
                   real ? "reals" : "integers", " of ", size, " bytes"));
}

absl::Status CheckWindow(Indices part, int64_t extent, const char* axis) {
  if (part.begin >= 0 && part.begin < part.end && part.end <= extent) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(axis, ": got [", part.begin, ", ", part.end,
                                                 "), want a nonempty part of [0, ", extent, ")"));
}

}  // namespace attnbias::internal
