// SPDX-License-Identifier: Apache-2.0
// What encodings say when a hyperparameter is not allowed: which field, what
// came, what was wanted.
#ifndef ATTNBIAS_CORE_ENCODING_CHECKS_H_
#define ATTNBIAS_CORE_ENCODING_CHECKS_H_

#include <cstdint>
#include <initializer_list>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/base/canonical_writer.h"
#include "core/base/invalid.h"
#include "core/encoding/spec.h"
#include "core/table/table.h"
#include "core/tensor/range.h"

namespace attnbias {

inline constexpr int64_t kMaxNumHeads = 65536;
inline constexpr int64_t kMaxWindowSide = 256;
// Every difference of two positions that the contract allows.
inline constexpr Range kRelativePositions = {-(int64_t{1} << 42),
                                             int64_t{1} << 42};

absl::Status CheckNumHeads(absl::string_view field, int64_t num_heads);

// One side of a window of tokens.
absl::Status CheckWindowSide(absl::string_view field, int64_t length);

// Numbers in a table whose values are computed with as doubles.
inline constexpr int64_t kMaxNetworkNumbers = int64_t{1} << 22;

// output.scale must be finite and not 0.
absl::Status CheckScale(const Output& output);

// For indices, output.scale must be 1.
absl::Status CheckUnscaled(const Output& output);

// Refuses values BUCKETS for an encoding that has none.
absl::Status CheckBias(const Output& output, absl::string_view name);

// The part of an identity that says which of an encoding's numbers are meant.
void WriteValues(bool indices, CanonicalWriter& writer);

// One axis of a table: how long it must be, and of what it has so many.
struct Axis {
  int64_t length;
  absl::string_view name;
};

// `table` must have exactly these axes: {{32, "buckets"}, {8, "heads"}}.
absl::Status CheckShape(absl::string_view field, const Table& table,
                        std::initializer_list<Axis> axes);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_CHECKS_H_
