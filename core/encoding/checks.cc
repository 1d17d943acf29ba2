// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/checks.h"

#include <cmath>

namespace attnbias {

absl::Status CheckNumHeads(absl::string_view field, int64_t num_heads) {
  if (num_heads >= 1 && num_heads <= kMaxNumHeads) return absl::OkStatus();
  return Invalid(field, ": got ", num_heads, ", want an integer in [1, ",
                 kMaxNumHeads, "]");
}

absl::Status CheckScale(const Output& output) {
  if (std::isfinite(output.scale) && output.scale != 0) return absl::OkStatus();
  return Invalid("output.scale: got ", output.scale,
                 ", want a finite number other than 0");
}

absl::Status CheckUnscaled(const Output& output) {
  if (output.scale == 1) return absl::OkStatus();
  return Invalid("output.scale: got ", output.scale,
                 ", want none: indices are not scaled");
}

absl::Status CheckBias(const Output& output, absl::string_view name) {
  if (output.values != Values::kBuckets) return absl::OkStatus();
  return Invalid("output.values: got BUCKETS, want BIAS: ", name,
                 " has no buckets");
}

void WriteValues(bool indices, CanonicalWriter& writer) {
  writer.Integer(
      100, static_cast<int64_t>(indices ? Values::kBuckets : Values::kBias),
      static_cast<int64_t>(Values::kBias));
}

}  // namespace attnbias
