// SPDX-License-Identifier: Apache-2.0
// From a spec to its encoding. Each encoding's file registers what describes
// it, so that nobody else has to know it.
#ifndef ATTNBIAS_CORE_ENCODING_MAKE_ENCODING_H_
#define ATTNBIAS_CORE_ENCODING_MAKE_ENCODING_H_

#include "absl/status/statusor.h"
#include "core/encoding/encoding.h"
#include "core/encoding/spec/spec_registration.h"
#include "core/encoding/spec/tensor_spec.h"

namespace attnbias {

// Validates hyperparameters, output.values and output.scale.
//
// INVALID_ARGUMENT  a field's value; the message begins with the field's path
//                   inside TensorSpec and ": "
absl::StatusOr<EncodingPtr> MakeEncoding(EncodingSpec spec,
                                         const Output& output);

// Makes an encoding known, for the life of the program:
//
//   const EncodingRegistration kAlibi(&DescribeAlibi);
//
// The function is given a spec whose fields have passed CheckFields; those of
// biases have not where values BUCKETS are asked for.
using EncodingRegistration = SpecRegistration<Encoding>;

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_MAKE_ENCODING_H_
