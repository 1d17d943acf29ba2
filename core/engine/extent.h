// SPDX-License-Identifier: Apache-2.0
// Which positions are asked for: the only place that decides what is allowed
// about extents.
#ifndef ATTNBIAS_CORE_ENGINE_EXTENT_H_
#define ATTNBIAS_CORE_ENGINE_EXTENT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "attnbias/v1/encodings.pb.h"
#include "core/encoding/encoding.h"
#include "core/engine/plan.h"
#include "core/tensor/range.h"

namespace attnbias {

// Bounds of the contract.
inline constexpr int64_t kMaxPositionListLength = 262144;
inline constexpr int64_t kMaxGridTokens = 65536;

// Sets the window that the extent of `spec` asks for. Writes what the extent
// resolves to back into it: every default filled in, a list of consecutive
// positions as their range.
//
// INVALID_ARGUMENT  what is not allowed; the message begins with the field's
//                   path inside TensorSpec and ": "
absl::Status ResolveExtent(const Encoding& encoding, v1::TensorSpec& spec,
                           Window& window);

// Refuses positions that the encoding has no numbers for, though the contract
// allows them. `spec` is what was asked for.
//
// OUT_OF_RANGE  the message begins as above
absl::Status CheckDomain(const Plan& plan, const v1::TensorSpec& spec);

// The queries of a whole grid, or without `query_stride` its tokens; with its
// class token.
Range AllTokens(const Encoding& encoding,
                const std::vector<int64_t>& query_stride = {});

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENGINE_EXTENT_H_
