// SPDX-License-Identifier: Apache-2.0
// Defines the biases that have a formula: each function writes one element for a valid spec, using
// increasing precision until the single rounding is decided.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attnbias/v1/encodings.pb.h"
#include "core/encoding/encoding.h"

namespace attnbias {

// Writes slope x scale x distance, and +0 at distance 0, where peers that multiply by a negative
// slope may produce -0.
void ReferenceAlibi(const v1::Alibi& spec, int64_t head, int64_t coordinate,
                    const NumberFormat& format, std::byte* out);

// The parameters of one head.
struct KerpleHead {
  KerpleHead(const v1::Kerple& spec, int head)
      : is_log(spec.kernel() == v1::KERPLE_KERNEL_LOG),
        p(spec.p(spec.p_size() == 1 ? 0 : head)),
        a(spec.a(spec.a_size() == 1 ? 0 : head)) {}

  // Returns the factor by which ln(1 + a d) or d^p is multiplied.
  double weight() const { return is_log ? -p : -a; }

  bool is_log;
  double p;
  double a;
};

// Writes +0 at distance 0.
void ReferenceKerple(const KerpleHead& head, int64_t distance, const NumberFormat& format,
                     std::byte* out);

void ReferenceSandwich(const v1::Sandwich& spec, int64_t head, int64_t distance,
                       const NumberFormat& format, std::byte* out);

}  // namespace attnbias
