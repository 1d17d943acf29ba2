// SPDX-License-Identifier: Apache-2.0
// A StreamTensorRequest, from its bytes to its plan and header, as in the server. GetTensorRequest
// and DescribeTensorRequest consist of its first field.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "attnbias/v1/service.pb.h"
#include "core/base/errors.h"
#include "core/engine/plan.h"
#include "core/mount/registry.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "server/service/messages.h"
#include "server/service/tensor_service.h"
#include "tests/fuzz/heap_growth.h"
#include "tests/fuzz/message_mutator.h"
#include "tests/fuzz/mounted_tables.h"

namespace attnbias {
namespace {

constexpr int64_t kMaxTensorBytes = int64_t{1} << 40;
// Memory independent of the input size: an encoding has values for each of its heads or columns,
// of which there may be 65536.
constexpr int64_t kFixedBytes = int64_t{8} << 20;
constexpr int64_t kBytesPerByte = 64;

absl::StatusOr<PlanPtr> PlanOf(v1::TensorSpec spec) {
  ATTNBIAS_ASSIGN_OR_RETURN(const Tables tables, TakeTables(MountedTables(), spec));
  return MakePlan(std::move(spec), tables, kMaxTensorBytes);
}

absl::StatusOr<v1::TensorHeader> Answer(const grpc::ByteBuffer& bytes) {
  ATTNBIAS_ASSIGN_OR_RETURN(
      const auto request,
      ParseRequest<v1::StreamTensorRequest>(bytes, [](int64_t) { return absl::OkStatus(); }));
  ATTNBIAS_ASSIGN_OR_RETURN(const PlanPtr plan, PlanOf(request.spec()));
  v1::TensorHeader header = HeaderOf(*plan);
  const absl::StatusOr<StreamWindow> window = ResolveStream(request, *plan);
  if (window.ok()) {
    const Range whole = {0, plan->total_bytes()};
    if (!whole.Contains(window->bytes) || window->chunk_bytes <= 0) {
      std::abort();
    }
  }
  return header;
}

// Checks that the resolved spec is a request for the same tensor.
void CheckResolved(const v1::TensorHeader& header) {
  const absl::StatusOr<PlanPtr> again = PlanOf(header.resolved_spec());
  // Tables sent with the request are not mounted.
  if (absl::IsNotFound(again.status())) return;
  if (!again.ok() || (*again)->fingerprint() != header.fingerprint()) {
    std::abort();
  }
}

}  // namespace
}  // namespace attnbias

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  attnbias::MountedTables();
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  attnbias::v1::StreamTensorRequest message;
  return attnbias::MutateMessage(&message, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  absl::StatusOr<attnbias::v1::TensorHeader> header;
  {
    const attnbias::HeapGrowth growth;
    const grpc::Slice slice(data, size);
    header = attnbias::Answer(grpc::ByteBuffer(&slice, 1));
    growth.ExpectAtMost(attnbias::kFixedBytes, attnbias::kBytesPerByte, static_cast<int64_t>(size));
  }
  if (header.ok()) attnbias::CheckResolved(*header);
  return 0;
}
