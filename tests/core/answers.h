// SPDX-License-Identifier: Apache-2.0
// An engine's answers, for laws that encodings are held to through it.
#ifndef ATTNBIAS_TESTS_CORE_ANSWERS_H_
#define ATTNBIAS_TESTS_CORE_ANSWERS_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/checksum/crc32c.h"
#include "core/engine/engine.h"
#include "core/kernel/kernel_set.h"
#include "core/tensor/element.h"
#include "gtest/gtest.h"
#include "tests/testing/counting_observer.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/threads.h"

namespace attnbias {

class Answers {
 public:
  explicit Answers(EngineOptions options = {})
      : engine_(options, *SupportedKernelSets().front(), &threads_,
                &observer_) {}
  ~Answers() { threads_.Join(); }

  absl::Status StatusOf(const TensorSpec& spec) {
    return engine_.MakePlan(spec).status();
  }

  PlanPtr Plan(const TensorSpec& spec) {
    absl::StatusOr<PlanPtr> plan = engine_.MakePlan(spec);
    EXPECT_THAT(plan, IsOk());
    return *plan;
  }

  PayloadPtr Get(const PlanPtr& plan) {
    absl::StatusOr<PayloadPtr> result = absl::UnknownError("not called");
    std::mutex mutex;
    std::condition_variable called;
    bool done = false;
    engine_.Get(plan, std::make_shared<Cancellation>(),
                [&](absl::StatusOr<PayloadPtr> payload) {
                  std::lock_guard<std::mutex> lock(mutex);
                  result = std::move(payload);
                  done = true;
                  called.notify_one();
                });
    std::unique_lock<std::mutex> lock(mutex);
    called.wait(lock, [&] { return done; });
    EXPECT_THAT(result, IsOk());
    return *std::move(result);
  }

  // A chunk's bytes, which its checksum fits.
  static std::string Read(const PayloadPtr& payload, int64_t offset,
                          int64_t size) {
    const absl::StatusOr<Chunk> chunk = payload->Read(offset, size);
    EXPECT_THAT(chunk, IsOk());
    std::string bytes;
    for (absl::Span<const std::byte> piece : chunk->pieces) {
      bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    EXPECT_EQ(chunk->crc32c, Crc32c(bytes.data(), bytes.size()));
    return bytes;
  }

  std::string Bytes(const TensorSpec& spec) {
    const PlanPtr plan = Plan(spec);
    return Read(Get(plan), 0, plan->total_bytes());
  }

  std::vector<double> Numbers(const TensorSpec& spec) {
    const DataType type = Plan(spec)->data_type();
    const std::string bytes = Bytes(spec);
    std::vector<double> numbers;
    const auto count = static_cast<int64_t>(bytes.size()) / SizeOf(type);
    for (int64_t i = 0; i < count; ++i) {
      numbers.push_back(ReadElement(
          type, reinterpret_cast<const std::byte*>(&bytes[i * SizeOf(type)])));
    }
    return numbers;
  }

  int64_t computed() const { return observer_.computed; }

 private:
  CountingObserver observer_;
  Threads threads_{2};
  Engine engine_;
};

inline PairExtent PairOf(int64_t query_length, int64_t key_length,
                         int64_t offset) {
  PairExtent pair;
  pair.query_length = query_length;
  pair.key_length = key_length;
  pair.query_offset = offset;
  return pair;
}

}  // namespace attnbias

#endif  // ATTNBIAS_TESTS_CORE_ANSWERS_H_
