// SPDX-License-Identifier: Apache-2.0
// Which bytes of a payload a StreamTensor asks for.
#ifndef ATTNBIAS_SERVER_STREAM_REQUEST_H_
#define ATTNBIAS_SERVER_STREAM_REQUEST_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "attnbias/v1/service.pb.h"
#include "core/engine/plan.h"
#include "core/tensor/range.h"

namespace attnbias {

struct StreamWindow {
  // Bytes of the payload; empty when only the header is wanted.
  Range bytes;
  int64_t chunk_bytes = 0;
};

// INVALID_ARGUMENT     a field's value
// FAILED_PRECONDITION  expected_fingerprint is not the plan's
// OUT_OF_RANGE         read_offset lies past the payload's end
absl::StatusOr<StreamWindow> ResolveStream(
    const v1::StreamTensorRequest& request, const Plan& plan);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_STREAM_REQUEST_H_
