// SPDX-License-Identifier: Apache-2.0
// Brings one payload into memory over StreamTensor: begun, resumed where it
// broke, complete or an error.
#pragma once

#include <grpcpp/channel.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attnbias/client.h"
#include "attnbias/v1/service.pb.h"
#include "client/cpp/src/attempts.h"

namespace attnbias {

// Finds memory for a payload of header.total_bytes(). Called again when a
// download has to start afresh; the memory given before is then out of use.
using ReserveFn = std::function<absl::StatusOr<absl::Span<std::byte>>(
    const v1::TensorHeader& header)>;

// Returns the header once the payload is whole, or the error of the last
// attempt.
absl::StatusOr<v1::TensorHeader> Download(
    const v1::TensorSpec& spec, int64_t max_tensor_bytes,
    const ReserveFn& reserve, const ProgressFn& progress,
    const std::shared_ptr<grpc::Channel>& channel, Attempts attempts);

}  // namespace attnbias
