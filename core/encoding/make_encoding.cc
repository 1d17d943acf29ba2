// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/make_encoding.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "core/base/invalid.h"
#include "core/base/status_macros.h"

namespace attnbias {
namespace {

// Evaluators of less than this are as good as nothing.
constexpr int64_t kLeastCountedBytes = int64_t{64} << 10;

absl::Status CheckScale(double scale, bool indices) {
  if (!std::isfinite(scale) || scale == 0) {
    return Invalid("output.scale: got ", scale,
                   ", want a finite number other than 0");
  }
  if (!indices || scale == 1) return absl::OkStatus();
  return Invalid("output.scale: got ", scale,
                 ", want none: indices are not scaled");
}

absl::Status CheckValues(const Encoding& encoding, const Output& output,
                         const FieldList& fields) {
  const std::string name(encoding.name);
  if (output.values == Values::kBias && !encoding.has_biases) {
    return Invalid("output.values: got BIAS, want BUCKETS: ", name,
                   " has indices alone");
  }
  if (output.values != Values::kBuckets || encoding.has_buckets) {
    return absl::OkStatus();
  }
  const bool has_some =
      std::any_of(fields.begin(), fields.end(),
                  [](const Field& field) { return field.is_of_bias(); });
  return Invalid("output.values: got BUCKETS, want BIAS: ", name,
                 " has no buckets", has_some ? " with the fields given" : "");
}

// All heads and columns share an index.
void TakeIndices(Encoding& encoding) {
  encoding.has_indices = true;
  encoding.lanes = 1;
  encoding.width = 1;
  encoding.has_heads = false;
  encoding.has_columns = false;
}

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(EncodingSpec spec,
                                         const Output& output) {
  const bool buckets = output.values == Values::kBuckets;
  ATTNBIAS_ASSIGN_OR_RETURN(Encoding encoding, EncodingRegistration::Describe(
                                                   "encoding", spec, buckets));
  encoding.name = spec.name();
  ATTNBIAS_RETURN_IF_ERROR(CheckValues(encoding, output, spec.Fields()));
  if (buckets || !encoding.has_biases) {
    TakeIndices(encoding);
  } else {
    ATTNBIAS_RETURN_IF_ERROR(encoding.bias_status);
  }
  ATTNBIAS_RETURN_IF_ERROR(CheckScale(output.scale, encoding.has_indices));
  if (encoding.evaluator_bytes < kLeastCountedBytes) {
    encoding.evaluator_bytes = 0;
  }
  CanonicalWriter identity(encoding.name, encoding.numerics_version);
  spec.WriteIdentity(encoding.has_indices, identity);
  identity.Integer(100,
                   static_cast<int64_t>(encoding.has_indices ? Values::kBuckets
                                                             : Values::kBias),
                   static_cast<int64_t>(Values::kBias));
  identity.Real(101, output.scale, 1);
  encoding.identity = identity.bytes();
  return std::make_shared<const Encoding>(std::move(encoding));
}

}  // namespace attnbias
