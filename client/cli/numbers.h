// SPDX-License-Identifier: Apache-2.0
// Corners of a tensor as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"
#include "attnbias/v1/service.pb.h"

namespace attnbias {

// Returns the little-endian element at `bytes`, exactly: double holds every
// number of each type.
double ReadElement(v1::DataType type, const std::byte* bytes);

// Returns up to six rows and columns of the last two axes, at index 0 of the
// others, with "..." for the rest. If the first axis is heads, labels each with
// its number, from `first_head` on.
std::string PreviewNumbers(const v1::TensorPart& part, absl::Span<const std::byte> bytes,
                           std::optional<int64_t> first_head = std::nullopt);

}  // namespace attnbias
