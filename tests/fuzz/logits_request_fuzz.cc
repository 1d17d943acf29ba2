// SPDX-License-Identifier: Apache-2.0
// A call's first ComputeLogitsRequest, from its bytes to its plan.
#include <cstdint>
#include <cstdlib>

#include "attnbias/v1/logits.pb.h"
#include "core/base/errors.h"
#include "core/logits/plan.h"
#include "core/mount/registry.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "server/service/messages.h"
#include "tests/fuzz/heap_growth.h"
#include "tests/fuzz/message_mutator.h"
#include "tests/fuzz/mounted_tables.h"

namespace attnbias {
namespace {

constexpr LogitsLimits kLimits = {.max_vector_bytes = int64_t{1} << 27,
                                  .max_row_bytes = kMaxUnaryBytes};
constexpr int64_t kFixedBytes = int64_t{8} << 20;
constexpr int64_t kBytesPerByte = 64;
// Plans with more keys are not checked key by key.
constexpr int64_t kFewKeys = 1000;

absl::StatusOr<LogitsPlanPtr> PlanOf(const grpc::ByteBuffer& bytes) {
  ATTNBIAS_ASSIGN_OR_RETURN(auto request, ParseRequest<v1::ComputeLogitsRequest>(
                                              bytes, [](int64_t) { return absl::OkStatus(); }));
  ATTNBIAS_ASSIGN_OR_RETURN(const Tables tables,
                            TakeTables(MountedTables(), *request.mutable_spec()));
  ATTNBIAS_ASSIGN_OR_RETURN(LogitsPlanPtr plan,
                            LogitsPlan::Make(std::move(*request.mutable_spec()), tables, kLimits));
  HeaderOf(*plan);
  (void)plan->CheckRows(request.first_row(), request.num_rows(),
                        static_cast<int64_t>(request.data().size()));
  return plan;
}

// Checks that each visible key has exactly one of the vectors.
void CheckRow(const LogitsPlan& plan, int64_t row) {
  for (const TermComponent& component : plan.term().components) {
    int64_t next = plan.VisibleKeys(row).begin;
    for (const KeySegment& segment : plan.KeySegmentsOf(component, row)) {
      const Range made = {0, component.count};
      for (const int64_t vector : {segment.vector, segment.last_vector()}) {
        if (!made.Contains({vector, vector + 1})) std::abort();
      }
      if (segment.keys.begin != next) std::abort();
      next = segment.keys.end;
    }
    if (next < plan.VisibleKeys(row).end) std::abort();
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
  attnbias::v1::ComputeLogitsRequest message;
  return attnbias::MutateMessage(&message, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  absl::StatusOr<attnbias::LogitsPlanPtr> plan;
  {
    const attnbias::HeapGrowth growth;
    const grpc::Slice slice(data, size);
    plan = attnbias::PlanOf(grpc::ByteBuffer(&slice, 1));
    growth.ExpectAtMost(attnbias::kFixedBytes, attnbias::kBytesPerByte, static_cast<int64_t>(size));
  }
  if (!plan.ok() || (*plan)->spec().key_length() > attnbias::kFewKeys) return 0;
  attnbias::CheckRow(**plan, 0);
  attnbias::CheckRow(**plan, (*plan)->spec().query_length() - 1);
  return 0;
}
