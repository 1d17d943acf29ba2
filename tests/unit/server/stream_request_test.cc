// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <string>

#include "core/engine/engine.h"
#include "core/kernel/kernel_set.h"
#include "gtest/gtest.h"
#include "server/schedule/worker_pool.h"
#include "server/service/tensor_service.h"
#include "tests/unit/support/counting_observer.h"
#include "tests/unit/support/specs.h"
#include "tests/unit/support/status_matchers.h"

namespace attnbias::stream_request_test {
namespace {

using testing::StartsWith;

class ResolveStreamTest : public testing::Test {
 protected:
  ResolveStreamTest()
      : pool_(1),
        engine_({}, *SupportedKernelSets().front(), &pool_, &observer_) {
    // 10 x 5 x 4 bytes
    plan_ = *engine_.MakePlan(
        Parse<v1::TensorSpec>(
            "alibi {num_heads: 10} pair {query_length: 3 key_length: 3}"),
        {});
    request_.set_expected_fingerprint(plan_->fingerprint());
  }

  absl::StatusOr<StreamWindow> Resolve() {
    return ResolveStream(request_, *plan_);
  }

  CountingObserver observer_;
  WorkerPool pool_;
  Engine engine_;
  PlanPtr plan_;
  v1::StreamTensorRequest request_;
};

TEST_F(ResolveStreamTest, DefaultsToAllInChunksOfAMebibyte) {
  request_.clear_expected_fingerprint();
  EXPECT_EQ(Resolve()->bytes, (Range{0, 200}));
  EXPECT_EQ(Resolve()->chunk_bytes, 1 << 20);
}

TEST_F(ResolveStreamTest, CutsAWindowOut) {
  request_.set_read_offset(7);
  request_.set_read_limit(11);
  request_.set_max_chunk_bytes(4096);
  EXPECT_EQ(Resolve()->bytes, (Range{7, 18}));
  EXPECT_EQ(Resolve()->chunk_bytes, 4096);
  request_.set_read_limit(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(Resolve()->bytes, (Range{7, 200}));
}

TEST_F(ResolveStreamTest, TheEndIsEmptyAndBeyondIsOutOfRange) {
  request_.set_read_offset(200);
  EXPECT_EQ(Resolve()->bytes.size(), 0);
  request_.set_read_offset(201);
  EXPECT_THAT(Resolve(), StatusIs(absl::StatusCode::kOutOfRange,
                                  StartsWith("read_offset: got 201")));
}

TEST_F(ResolveStreamTest, RefusesNegativeNumbers) {
  request_.set_read_limit(-1);
  EXPECT_THAT(Resolve(), StatusIs(absl::StatusCode::kInvalidArgument,
                                  StartsWith("read_limit: got -1")));
  request_.set_read_offset(-5);
  EXPECT_THAT(Resolve(), StatusIs(absl::StatusCode::kInvalidArgument,
                                  StartsWith("read_offset: got -5")));
}

TEST_F(ResolveStreamTest, ResumingNeedsTheRightFingerprint) {
  request_.set_read_offset(1);
  request_.clear_expected_fingerprint();
  EXPECT_THAT(Resolve(), StatusIs(absl::StatusCode::kInvalidArgument,
                                  StartsWith("expected_fingerprint: not set")));
  request_.set_expected_fingerprint(std::string(64, '0'));
  EXPECT_THAT(Resolve(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                  StartsWith("expected_fingerprint: ")));
}

TEST_F(ResolveStreamTest, BoundsTheChunk) {
  for (int size : {-1, 1, 4095, (2 << 20) + 1}) {
    request_.set_max_chunk_bytes(size);
    EXPECT_THAT(Resolve(), StatusIs(absl::StatusCode::kInvalidArgument,
                                    StartsWith("max_chunk_bytes: got ")));
  }
  request_.set_max_chunk_bytes(2 << 20);
  EXPECT_THAT(Resolve(), IsOk());
}

}  // namespace
}  // namespace attnbias::stream_request_test
