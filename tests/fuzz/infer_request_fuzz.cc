// SPDX-License-Identifier: Apache-2.0
// A ModelInferRequest, from its bytes to its plan and the pieces of its answer, as in the server.
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "core/base/errors.h"
#include "core/engine/plan.h"
#include "core/mount/registry.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "inference/inference.pb.h"
#include "server/service/messages.h"
#include "server/service/oip/infer.h"
#include "server/service/oip/model.h"
#include "tests/fuzz/heap_growth.h"
#include "tests/fuzz/message_mutator.h"
#include "tests/fuzz/mounted_tables.h"

namespace attnbias {
namespace {

constexpr int64_t kMaxTensorBytes = int64_t{1} << 40;
constexpr int64_t kFixedBytes = int64_t{8} << 20;
constexpr int64_t kBytesPerByte = 64;
// Longer answers are not split completely.
constexpr int kFewPieces = 1000;

struct Answer {
  v1::TensorSpec spec;
  PlanPtr plan;
  std::vector<Part> outputs;
};

absl::StatusOr<PlanPtr> PlanOf(v1::TensorSpec spec) {
  ATTNBIAS_ASSIGN_OR_RETURN(const Tables tables, TakeTables(MountedTables(), spec));
  return MakePlan(std::move(spec), tables, kMaxTensorBytes);
}

absl::StatusOr<Answer> AnswerTo(const grpc::ByteBuffer& bytes) {
  ATTNBIAS_ASSIGN_OR_RETURN(auto message, ParseRequest<inference::ModelInferRequest>(
                                              bytes, [](int64_t) { return absl::OkStatus(); }));
  InferRequest request;
  ATTNBIAS_RETURN_IF_ERROR(request.Decode(std::move(message)));
  ATTNBIAS_ASSIGN_OR_RETURN(PlanPtr plan, PlanOf(request.spec));
  ATTNBIAS_ASSIGN_OR_RETURN(std::vector<Part> outputs, ChooseOutputs(request, *plan));
  return Answer{std::move(request.spec), std::move(plan), std::move(outputs)};
}

// Checks that the same request to AttentionBiasService yields the same tensor.
void CheckSpec(const Answer& answer) {
  v1::TensorSpec read;
  if (!read.ParseFromString(answer.spec.SerializeAsString())) std::abort();
  const absl::StatusOr<PlanPtr> again = PlanOf(read);
  if (!again.ok() || (*again)->fingerprint() != answer.plan->fingerprint()) {
    std::abort();
  }
}

// Checks that each output is sent once, completely.
void CheckPieces(const Answer& answer) {
  Pieces pieces(answer.outputs);
  auto output = answer.outputs.begin();
  int64_t next = 0;
  for (int i = 0; i < kFewPieces && !pieces.AreAllTaken(); ++i) {
    if (next == 0) next = output->offset;
    const Range bytes = pieces.Take().bytes;
    if (bytes.begin != next || bytes.size() <= 0 || bytes.size() > kMaxChunkBytes) {
      std::abort();
    }
    next = bytes.end;
    if (next == output->offset + output->size_bytes) {
      ++output;
      next = 0;
    }
  }
  if (pieces.AreAllTaken() != (output == answer.outputs.end())) std::abort();
}

}  // namespace
}  // namespace attnbias

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  attnbias::MountedTables();
  attnbias::Model::All();
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  inference::ModelInferRequest message;
  return attnbias::MutateMessage(&message, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  absl::StatusOr<attnbias::Answer> answer;
  {
    const attnbias::HeapGrowth growth;
    const grpc::Slice slice(data, size);
    answer = attnbias::AnswerTo(grpc::ByteBuffer(&slice, 1));
    growth.ExpectAtMost(attnbias::kFixedBytes, attnbias::kBytesPerByte, static_cast<int64_t>(size));
  }
  if (!answer.ok()) return 0;
  attnbias::CheckSpec(*answer);
  attnbias::CheckPieces(*answer);
  return 0;
}
