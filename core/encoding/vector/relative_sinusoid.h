// SPDX-License-Identifier: Apache-2.0
// Sinusoids of relative positions: at every pair the row that a sinusoidal
// table has for its distance i - j, query minus key. What Transformer-XL,
// XLNet, Conformer and the symmetric form share.
#ifndef ATTNBIAS_CORE_ENCODING_VECTOR_RELATIVE_SINUSOID_H_
#define ATTNBIAS_CORE_ENCODING_VECTOR_RELATIVE_SINUSOID_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/base/canonical_writer.h"
#include "core/encoding/encoding.h"
#include "core/encoding/spec/sinusoidal.h"

namespace attnbias {

// Which row stands for a distance.
struct DistanceRule {
  // Whether distances lose their sign.
  bool symmetric = false;
  // Whether keys to the right of the query have a zero vector, and no row.
  bool zero_right = false;
  // The largest magnitude, as which all beyond it count.
  std::optional<int64_t> clamp_len;
};

// Their encoding. `table` has an even dim.
Encoding RelativeSinusoid(const SinusoidalSpec& table,
                          const DistanceRule& rule);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_VECTOR_RELATIVE_SINUSOID_H_
