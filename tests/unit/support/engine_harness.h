// SPDX-License-Identifier: Apache-2.0
// An engine, and its answers as bytes and as numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/checksum/crc32c.h"
#include "core/engine/engine.h"
#include "core/kernel/kernel_set.h"
#include "core/tensor/data_type.h"
#include "gtest/gtest.h"
#include "tests/unit/support/await.h"
#include "tests/unit/support/counting_observer.h"
#include "tests/unit/support/specs.h"
#include "tests/unit/support/status_matchers.h"
#include "tests/unit/support/threads.h"

namespace attnbias {

inline absl::StatusOr<Chunk> Read(Payload& payload, int64_t offset, int64_t size) {
  return Await<absl::StatusOr<Chunk>>(
      [&](Payload::Done done) { payload.Read(offset, size, std::move(done)); });
}

class EngineHarness {
 public:
  explicit EngineHarness(const EngineOptions& options = {},
                         const KernelSet& kernels = *SupportedKernelSets().front())
      : engine_(options, kernels, &threads_, &observer_) {}
  ~EngineHarness() { threads_.Join(); }

  absl::StatusOr<PlanPtr> MakePlan(v1::TensorSpec spec) const {
    return engine_.MakePlan(std::move(spec), TestTables());
  }

  PlanPtr Plan(v1::TensorSpec spec) const {
    absl::StatusOr<PlanPtr> plan = MakePlan(std::move(spec));
    EXPECT_THAT(plan, IsOk());
    return *plan;
  }

  PayloadPtr Get(const PlanPtr& plan) {
    absl::StatusOr<PayloadPtr> payload = TryGet(plan);
    EXPECT_THAT(payload, IsOk());
    return *std::move(payload);
  }

  absl::StatusOr<PayloadPtr> TryGet(const PlanPtr& plan) {
    return Await<absl::StatusOr<PayloadPtr>>(
        [&](Engine::Done done) { engine_.Get(plan, std::make_shared<Caller>(), std::move(done)); });
  }

  // Returns a chunk's bytes, and checks that they match its checksum.
  static std::string Bytes(const absl::StatusOr<Chunk>& chunk) {
    EXPECT_THAT(chunk, IsOk());
    std::string bytes;
    for (absl::Span<const std::byte> piece : chunk->pieces) {
      bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    EXPECT_EQ(chunk->crc32c, Crc32c(bytes.data(), bytes.size()));
    return bytes;
  }

  std::string Whole(v1::TensorSpec spec) {
    const PlanPtr plan = Plan(std::move(spec));
    return Bytes(Read(*Get(plan), 0, plan->total_bytes()));
  }

  // Returns the values of all parts, one part after another.
  std::vector<double> Numbers(v1::TensorSpec spec) {
    const PlanPtr plan = Plan(std::move(spec));
    const std::string bytes = Bytes(Read(*Get(plan), 0, plan->total_bytes()));
    const int64_t width = SizeOf(plan->data_type());
    std::vector<double> numbers;
    for (size_t at = 0; at < bytes.size(); at += width) {
      numbers.push_back(
          ReadElement(plan->data_type(), reinterpret_cast<const std::byte*>(bytes.data() + at)));
    }
    return numbers;
  }

  // Checks that reads at random offsets are slices of the whole.
  void ExpectSliceable(const v1::TensorSpec& spec) {
    const PlanPtr plan = Plan(spec);
    const PayloadPtr payload = Get(plan);
    const int64_t total = plan->total_bytes();
    const std::string whole = Bytes(Read(*payload, 0, total));
    std::mt19937 random(11);
    for (int i = 0; i < 40; ++i) {
      const int64_t offset = std::uniform_int_distribution<int64_t>(0, total - 1)(random);
      const int64_t size = std::uniform_int_distribution<int64_t>(1, total - offset)(random);
      ASSERT_EQ(Bytes(Read(*payload, offset, size)), whole.substr(offset, size));
    }
  }

  // Number of bands computed so far.
  int computed() const { return observer_.computed; }
  const ByteBudget& budget() const { return engine_.budget(); }

 private:
  CountingObserver observer_;
  Threads threads_{2};
  Engine engine_;
};

}  // namespace attnbias
