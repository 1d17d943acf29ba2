// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/checks.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_join.h"

namespace attnbias {

absl::Status CheckNumHeads(absl::string_view field, int64_t num_heads) {
  if (num_heads >= 1 && num_heads <= kMaxNumHeads) return absl::OkStatus();
  return Invalid(field, ": got ", num_heads, ", want an integer in [1, ",
                 kMaxNumHeads, "]");
}

absl::Status CheckWindowSide(absl::string_view field, int64_t length) {
  if (length >= 1 && length <= kMaxWindowSide) return absl::OkStatus();
  return Invalid(field, ": got ", length, ", want an integer in [1, ",
                 kMaxWindowSide, "]");
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

absl::Status CheckShape(absl::string_view field, const Table& table,
                        std::initializer_list<Axis> axes) {
  const absl::Span<const int64_t> got = table.shape();
  std::vector<int64_t> want;
  std::string named;
  for (const Axis& axis : axes) {
    absl::StrAppend(&named, want.empty() ? "" : ", ", axis.length, " ",
                    axis.name);
    want.push_back(axis.length);
  }
  if (got == absl::MakeConstSpan(want)) return absl::OkStatus();
  const bool swapped = want.size() == 2 && std::equal(got.rbegin(), got.rend(),
                                                      want.begin(), want.end());
  return Invalid(field, ": got shape [", absl::StrJoin(got, ", "), "], want [",
                 named, "]", swapped ? "; see the table's layout" : "");
}

}  // namespace attnbias
