// SPDX-License-Identifier: Apache-2.0
// Bounds of single messages; docs/protocol.md promises them.
#pragma once

#include <cstdint>

namespace attnbias {

// Requests larger than this are refused by gRPC.
inline constexpr int kMaxRequestBytes = 8 << 20;

// What stock clients accept as one message, and the payload that leaves room in
// it for a header.
inline constexpr int64_t kMaxUnaryResponseBytes = int64_t{4} << 20;
inline constexpr int64_t kMaxUnaryBytes =
    kMaxUnaryResponseBytes - (int64_t{64} << 10);

inline constexpr int64_t kMinChunkBytes = 4096;
inline constexpr int64_t kDefaultChunkBytes = int64_t{1} << 20;
inline constexpr int64_t kMaxChunkBytes = int64_t{2} << 20;

// Answers up to this size, of remembered requests and from the cache, are given
// on gRPC's own threads, where they are read at once: a change of thread would
// cost more.
inline constexpr int64_t kInlineBytes = int64_t{1} << 20;

}  // namespace attnbias
