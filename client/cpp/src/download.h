// SPDX-License-Identifier: Apache-2.0
// Brings one payload into memory, over as many streams as it takes.
#ifndef ATTNBIAS_CLIENT_CPP_SRC_DOWNLOAD_H_
#define ATTNBIAS_CLIENT_CPP_SRC_DOWNLOAD_H_

#include <grpcpp/generic/generic_stub.h>

#include <cstddef>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attnbias/client.h"
#include "attnbias/v1/service.pb.h"
#include "client/cpp/src/attempts.h"
#include "client/cpp/src/chunk.h"
#include "client/cpp/src/retry_state.h"

namespace attnbias {

// Finds memory for a payload of header.total_bytes(). Called again when a
// download has to start afresh; the memory given before is then out of use.
using ReserveFn = std::function<absl::StatusOr<absl::Span<std::byte>>(
    const v1::TensorHeader& header)>;

// For one thread and one call of Run.
class Download {
 public:
  // `stub` outlives this.
  Download(grpc::GenericStub* stub, int64_t max_tensor_bytes, ReserveFn reserve,
           const ProgressFn& progress);

  // The header of what now fills the reserved memory.
  absl::StatusOr<v1::TensorHeader> Run(const v1::TensorSpec& spec,
                                       Attempts attempts);

 private:
  // Runs one stream to its end. A broken message is an error here; how the
  // server ended the stream is in `end`.
  absl::Status Receive(const Attempts& attempts, CallEnd* end);
  bool IsComplete() const;
  absl::Status TakeHeader(Chunk chunk);
  absl::Status TakeData(const Chunk& chunk);
  void StartAfresh();

  grpc::GenericStub* const stub_;
  const int64_t max_tensor_bytes_;
  const ReserveFn reserve_;
  const ProgressFn& progress_;

  v1::StreamTensorRequest request_;
  std::optional<v1::TensorHeader> header_;
  absl::Span<std::byte> memory_;
  int64_t received_ = 0;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CLIENT_CPP_SRC_DOWNLOAD_H_
