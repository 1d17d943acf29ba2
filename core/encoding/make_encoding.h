// SPDX-License-Identifier: Apache-2.0
// Makes the encoding that a request names.
#pragma once

#include "absl/status/statusor.h"
#include "attnbias/v1/encodings.pb.h"
#include "core/encoding/encoding.h"
#include "core/request/registration.h"
#include "core/request/rules.h"

namespace attnbias {

// Checks and completes the request's encoding and output. ResolveExtent does the same for the
// extent.
//
// INVALID_ARGUMENT  a field's value; the message begins with the field's path inside TensorSpec and
//                   ": "
absl::StatusOr<EncodingPtr> MakeEncoding(const Tables& tables, v1::TensorSpec& spec);

using EncodingRegistration = Registration<Encoding>;

}  // namespace attnbias
