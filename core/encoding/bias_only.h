// SPDX-License-Identifier: Apache-2.0
// Refuses values BUCKETS for encodings that have no buckets.
#ifndef ATTNBIAS_CORE_ENCODING_BIAS_ONLY_H_
#define ATTNBIAS_CORE_ENCODING_BIAS_ONLY_H_

#include "core/encoding/checks.h"

namespace attnbias {

inline absl::Status CheckBias(const Output& output, absl::string_view name) {
  if (output.values == Values::kBias) return absl::OkStatus();
  return Invalid("output.values: got BUCKETS, want BIAS: ", name,
                 " has no buckets");
}

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_BIAS_ONLY_H_
