// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/encoding.h"

#include <utility>

#include "core/base/digest.h"
#include "core/base/errors.h"
#include "core/request/rules.h"

namespace attnbias {
namespace {

using google::protobuf::FieldDescriptor;

// Smaller evaluators are not counted.
constexpr int64_t kLeastCountedBytes = int64_t{64} << 10;

absl::Status CheckValues(const Encoding& encoding, v1::Values values,
                         const FieldDescriptor& field) {
  if (values == v1::VALUES_BIAS && !encoding.has_biases) {
    return Invalid("output.values: got BIAS, want BUCKETS: ", field.name(), " has only indices");
  }
  if (values != v1::VALUES_BUCKETS || encoding.has_buckets) {
    return absl::OkStatus();
  }
  return Invalid("output.values: got BUCKETS, want BIAS: ", field.name(), " has no indices");
}

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const Tables& tables, v1::TensorSpec& spec) {
  const bool buckets = spec.output().values() == v1::VALUES_BUCKETS;
  ATTNBIAS_ASSIGN_OR_RETURN(const FieldDescriptor* field, FieldIn("encoding", spec));
  google::protobuf::Message& message = *spec.GetReflection()->MutableMessage(&spec, field);
  ATTNBIAS_RETURN_IF_ERROR(Complete(field->name(), buckets, tables, message));
  // Sets the default scale if the output has none.
  ATTNBIAS_RETURN_IF_ERROR(Complete("output", buckets, tables, *spec.mutable_output()));
  ATTNBIAS_ASSIGN_OR_RETURN(Encoding encoding,
                            EncodingRegistration::Describe(field->number(), message, tables));
  encoding.name = field->name();
  ATTNBIAS_RETURN_IF_ERROR(CheckValues(encoding, spec.output().values(), *field));
  if (buckets || !encoding.has_biases) {
    // All heads and columns share an index.
    encoding.has_indices = true;
    encoding.lanes = 1;
    encoding.width = 1;
    encoding.has_heads = false;
    encoding.has_columns = false;
  } else {
    ATTNBIAS_RETURN_IF_ERROR(encoding.bias_status);
  }
  const double scale = spec.output().scale();
  if (encoding.has_indices && scale != 1) {
    return Invalid("output.scale: got ", scale, ", want none: indices are not scaled");
  }
  if (encoding.evaluator_bytes < kLeastCountedBytes) encoding.evaluator_bytes = 0;
  CanonicalWriter identity(encoding.name, encoding.numerics_version);
  const auto& canonical = encoding.canonical == nullptr ? message : *encoding.canonical;
  identity.Bytes(1, IdentityOf(canonical, encoding.has_indices, tables));
  identity.Integer(2, encoding.has_indices ? 1 : 0);
  identity.Real(3, scale, 1);
  encoding.identity = identity.bytes();
  encoding.canonical = nullptr;
  return std::make_shared<const Encoding>(std::move(encoding));
}

}  // namespace attnbias
