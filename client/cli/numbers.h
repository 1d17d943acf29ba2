// SPDX-License-Identifier: Apache-2.0
// A tensor's beginning and end as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"
#include "attnbias/v1/service.pb.h"

namespace attnbias {

// The element at `bytes`, little-endian. Exact: every type embeds in double.
double ReadElement(v1::DataType type, const std::byte* bytes);

// Up to six rows and columns of the last two axes, at index 0 of those before;
// "..." where something was left out. Where the first axis is heads, they have
// their numbers, from `first_head` on.
std::string PreviewNumbers(const v1::TensorPart& part,
                           absl::Span<const std::byte> bytes,
                           std::optional<int64_t> first_head = std::nullopt);

}  // namespace attnbias
