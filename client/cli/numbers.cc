// SPDX-License-Identifier: Apache-2.0
#include "client/cli/numbers.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "attnbias/tensor.h"

namespace attnbias {
namespace {

constexpr int64_t kShown = 6;
constexpr int64_t kGap = -1;

template <typename T>
T Load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

double FromHalf(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const double fraction = bits & 0x3ff;
  double magnitude;
  if (exponent == 0x1f) {
    magnitude = fraction == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, -24);
  } else {
    magnitude = std::ldexp(fraction + 1024, exponent - 25);
  }
  return std::copysign(magnitude, (bits & 0x8000) != 0 ? -1.0 : 1.0);
}

// Returns the indices of an axis to show, with kGap for those left out.
std::vector<int64_t> Shown(int64_t length) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < length; ++i) {
    if (length > kShown && i == kShown / 2) {
      indices.push_back(kGap);
      i = length - kShown / 2;
    }
    indices.push_back(i);
  }
  return indices;
}

}  // namespace

double ReadElement(v1::DataType type, const std::byte* bytes) {
  switch (type) {
    case v1::DATA_TYPE_F64:
      return Load<double>(bytes);
    case v1::DATA_TYPE_F32:
      return Load<float>(bytes);
    case v1::DATA_TYPE_F16:
      return FromHalf(Load<uint16_t>(bytes));
    case v1::DATA_TYPE_BF16:
      return std::bit_cast<float>(uint32_t{Load<uint16_t>(bytes)} << 16);
    case v1::DATA_TYPE_I32:
      return Load<int32_t>(bytes);
    default:
      return NAN;
  }
}

std::string PreviewNumbers(const v1::TensorPart& part, absl::Span<const std::byte> bytes,
                           std::optional<int64_t> first_head) {
  const int rank = part.shape_size();
  const int64_t columns = rank > 0 ? part.shape(rank - 1) : 1;
  const int64_t rows = rank > 1 ? part.shape(rank - 2) : 1;
  std::string text;
  if (bytes.empty()) return text;
  if (first_head.has_value() && rank > 2) {
    absl::StrAppend(&text, "head ", *first_head, ":\n");
  }
  for (const int64_t row : Shown(rows)) {
    if (row == kGap) {
      text += "  ...\n";
      continue;
    }
    if (first_head.has_value() && rank == 2) {
      absl::StrAppendFormat(&text, "head %-5d", *first_head + row);
    }
    for (const int64_t column : Shown(columns)) {
      if (column == kGap) {
        text += "  ...";
        continue;
      }
      const int64_t at = row * columns + column;
      absl::StrAppendFormat(
          &text, " %12.7g",
          ReadElement(part.data_type(), bytes.data() + at * ElementSize(part.data_type())));
    }
    text += "\n";
  }
  return text;
}

}  // namespace attnbias
