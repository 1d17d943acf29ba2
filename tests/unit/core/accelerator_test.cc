// SPDX-License-Identifier: Apache-2.0
// An accelerator's results equal the CPU's bit for bit, and the CPU takes over if the accelerator
// fails. Here the CPU runs the same code as a device would; if there is a device, the tests run on
// it too.
#include "core/kernel/cuda/accelerator.h"

#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/cpu_device.h"
#include "tests/unit/support/engine_harness.h"

namespace attnbias::accelerator_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr DataType kFloats[] = {DataType::kF64, DataType::kF32, DataType::kF16, DataType::kBF16};

class Fallbacks final : public AcceleratorObserver {
 public:
  void OnMade(int64_t bytes) override { made_bytes_ += bytes; }
  void OnFallback(const absl::Status& why, bool for_good) override {
    messages_.push_back(std::string(why.message()) + (for_good ? " for good" : " for once"));
  }

  int64_t made_bytes() const { return made_bytes_; }
  const std::vector<std::string>& messages() const { return messages_; }

 private:
  std::atomic<int64_t> made_bytes_{0};
  std::vector<std::string> messages_;
};

// An engine whose kernels have an accelerator.
class Accelerated {
 public:
  explicit Accelerated(std::unique_ptr<Device> device = nullptr)
      : Accelerated({.replace_slices = true}, std::move(device)) {}
  explicit Accelerated(const AcceleratorOptions& options, std::unique_ptr<Device> device = nullptr)
      : accelerator_(device != nullptr ? std::move(device) : std::make_unique<CpuDevice>(&log_),
                     options, &fallbacks_),
        kernels_(*SupportedKernelSets().front()) {
    kernels_.accelerator = &accelerator_;
    harness_.emplace(EngineOptions(), kernels_);
  }

  EngineHarness& engine() { return *harness_; }
  Accelerator& accelerator() { return accelerator_; }
  CpuDeviceLog& log() { return log_; }
  const Fallbacks& fallbacks() const { return fallbacks_; }

 private:
  CpuDeviceLog log_;
  Fallbacks fallbacks_;
  Accelerator accelerator_;
  KernelSet kernels_;
  std::optional<EngineHarness> harness_;
};

enum class Place { kCpu, kCuda };

class OnDevice : public ::testing::TestWithParam<Place> {
 protected:
  void SetUp() override {
    if (GetParam() == Place::kCuda && !OpenCudaDevice().ok()) {
      GTEST_SKIP() << OpenCudaDevice().status();
    }
  }

  // Opens a separate device for every engine.
  static std::unique_ptr<Device> Open() {
    return GetParam() == Place::kCuda ? *OpenCudaDevice() : nullptr;
  }

  static void ExpectCpuBytes(const v1::TensorSpec& spec) {
    Accelerated accelerated(Open());
    const std::string bytes = accelerated.engine().Whole(spec);
    EXPECT_EQ(bytes, EngineHarness().Whole(spec));
    EXPECT_EQ(accelerated.fallbacks().made_bytes(), static_cast<int64_t>(bytes.size()));
    accelerated.engine().ExpectSliceable(spec);
    EXPECT_THAT(accelerated.fallbacks().messages(), IsEmpty());
  }
};

constexpr Place kPlaces[] = {
    Place::kCpu,
#ifdef ATTNBIAS_HAVE_CUDA
    Place::kCuda,
#endif
};

std::string NameOf(const ::testing::TestParamInfo<Place>& info) {
  return info.param == Place::kCuda ? "OnCuda" : "OnCpu";
}

using AcceleratedExpansion = OnDevice;
INSTANTIATE_TEST_SUITE_P(, AcceleratedExpansion, ::testing::ValuesIn(kPlaces), NameOf);

// The last query is aligned with the last key.
v1::TensorSpec Over(const v1::TensorSpec& spec, int64_t query_length, int64_t key_length) {
  return OverPairs(spec, query_length, key_length, key_length - query_length);
}

v1::PositionList RandomPositions(int64_t count, int64_t length) {
  std::mt19937 random(5);
  v1::PositionList list;
  for (int64_t i = 0; i < count; ++i) {
    list.add_positions(std::uniform_int_distribution<int64_t>(0, length - 1)(random));
  }
  return list;
}

// Returns specs for all ways to slice and list pairs, with three heads.
std::vector<v1::TensorSpec> OverAllExtents(const v1::TensorSpec& spec) {
  std::vector<v1::TensorSpec> specs = {Over(spec, 1, 1), Over(spec, 3, 5), Over(spec, 37, 61),
                                       Over(spec, 64, 64), Over(spec, 2, 4099)};
  v1::TensorSpec window = Over(spec, 37, 61);
  *window.mutable_pair()->mutable_queries() = RangeOf(25, 31);
  *window.mutable_pair()->mutable_keys() = RangeOf(3, 40);
  *window.mutable_pair()->mutable_heads() = RangeOf(1, 3);
  specs.push_back(window);
  v1::TensorSpec lists = spec;
  v1::PairExtent& pair = *lists.mutable_pair();
  *pair.mutable_query_positions() = RandomPositions(7, 90);
  *pair.mutable_key_positions() = RandomPositions(33, 90);
  specs.push_back(lists);
  pair.clear_key_positions();
  pair.set_key_length(70);
  specs.push_back(lists);
  return specs;
}

TEST_P(AcceleratedExpansion, PairsMatchCpuBytes) {
  auto t5 = Parse<v1::TensorSpec>("t5 {bidirectional: true}");
  *t5.mutable_t5()->mutable_table() = RandomRef({32, 3}, 1);
  auto tupe = Parse<v1::TensorSpec>("tupe {reset_class_token: true}");
  *tupe.mutable_tupe()->mutable_relative_table() = RandomRef({33, 3}, 1);
  const auto alibi =
      Parse<v1::TensorSpec>("alibi {num_heads: 3 variant: ALIBI_VARIANT_KEY_FROM_START}");
  for (const v1::TensorSpec& encoding : {t5, alibi, tupe}) {
    for (const v1::TensorSpec& spec : OverAllExtents(encoding)) {
      for (const char* mask :
           {"", "mask {causal: true}", "mask {causal: true window_left: 6 fill_lowest: true}",
            "mask {window_left: 3 window_right: 11 fill_value: -5}"}) {
        for (const DataType type : kFloats) {
          ExpectCpuBytes(WithOutput(spec, absl::StrCat(kDense, Typed(type), mask)));
        }
      }
    }
  }
}

TEST_P(AcceleratedExpansion, IndicesMatchCpuBytes) {
  ExpectCpuBytes(Over(Parse<v1::TensorSpec>("t5 {bidirectional: true} "
                                            "output {form: FORM_DENSE values: VALUES_BUCKETS}"),
                      21, 90));
}

TEST_P(AcceleratedExpansion, GridsMatchCpuBytes) {
  auto swin = Parse<v1::TensorSpec>("grid_relative {window: [3, 5]}");
  v1::TensorSpec beit = swin;
  *swin.mutable_grid_relative()->mutable_table() = RandomRef({45, 2}, 1);
  beit.mutable_grid_relative()->set_class_token(true);
  *beit.mutable_grid_relative()->mutable_table() = RandomRef({48, 2}, 1);
  for (const v1::TensorSpec& encoding : {swin, beit}) {
    for (const char* extent :
         {"", "queries {end: 1}", "queries {begin: 2 end: 11} keys {end: 9}",
          "query_stride: [2, 2]", "query_stride: [1, 3] queries {begin: 1 end: 6}"}) {
      for (const DataType type : kFloats) {
        v1::TensorSpec spec = WithOutput(encoding, kDense + Typed(type));
        *spec.mutable_grid() = Parse<v1::GridExtent>(extent);
        ExpectCpuBytes(spec);
      }
    }
  }
}

v1::TensorSpec DenseAlibi(int64_t query_length, int64_t key_length) {
  return Over(Parse<v1::TensorSpec>("alibi {num_heads: 4} output {form: FORM_DENSE}"), query_length,
              key_length);
}

TEST_P(AcceleratedExpansion, SequentialReadsMatchCpuBytes) {
  // The last store of each read is narrower than the others.
  constexpr int64_t kRead = 4100;
  Accelerated accelerated(Open());
  const v1::TensorSpec spec = DenseAlibi(50, 50);
  const PlanPtr plan = accelerated.engine().Plan(spec);
  const PayloadPtr payload = accelerated.engine().Get(plan);
  std::string bytes;
  for (int64_t offset = 0; offset < plan->total_bytes(); offset += kRead) {
    const int64_t size = std::min<int64_t>(kRead, plan->total_bytes() - offset);
    bytes += EngineHarness::Bytes(Read(*payload, offset, size));
  }
  EXPECT_EQ(bytes, EngineHarness().Whole(spec));
  EXPECT_EQ(accelerated.fallbacks().made_bytes(), plan->total_bytes());
}

v1::TensorSpec Large() { return DenseAlibi(50, 50); }

TEST(Fallback, BrokenDeviceIsDisabledOnce) {
  for (const int64_t good_launches : {0, 1, 2, 5}) {
    Accelerated accelerated;
    accelerated.log().good_launches = good_launches;
    const PlanPtr plan = accelerated.engine().Plan(Large());
    const PayloadPtr payload = accelerated.engine().Get(plan);
    std::string bytes;
    for (int64_t offset = 0; offset < plan->total_bytes(); offset += 4000) {
      bytes += EngineHarness::Bytes(Read(*payload, offset, 4000));
    }
    EXPECT_EQ(bytes, EngineHarness().Whole(Large()));
    EXPECT_EQ(accelerated.engine().Whole(Large()), bytes);
    EXPECT_THAT(accelerated.fallbacks().messages(),
                ElementsAre("CUDA: the device is broken for good"));
    EXPECT_FALSE(accelerated.accelerator().Wants(int64_t{1} << 40, false));
  }
}

TEST(Fallback, FullDeviceIsRetried) {
  Accelerated accelerated;
  for (const int64_t memory : {0, 1000, 20000}) {
    accelerated.log().memory_bytes = memory;
    EXPECT_EQ(accelerated.engine().Whole(Large()), EngineHarness().Whole(Large()));
  }
  EXPECT_EQ(accelerated.log().launches, 0);
  EXPECT_THAT(accelerated.fallbacks().messages(), ElementsAre("CUDA: out of memory for once"));
  accelerated.log().memory_bytes = int64_t{1} << 40;
  EXPECT_EQ(accelerated.engine().Whole(Large()), EngineHarness().Whole(Large()));
  EXPECT_GT(accelerated.log().launches, 0);
}

TEST(Fallback, MemoryForOnlySomeArraysIsNotEnough) {
  v1::TensorSpec spec = Large();
  spec.clear_pair();
  *spec.mutable_pair()->mutable_query_positions() = RandomPositions(70, 90);
  *spec.mutable_pair()->mutable_key_positions() = RandomPositions(80, 90);
  Accelerated accelerated;
  for (int64_t memory = 0; accelerated.log().launches == 0; memory += 256) {
    accelerated.log().memory_bytes = memory;
    EXPECT_EQ(accelerated.engine().Whole(spec), EngineHarness().Whole(spec));
  }
}

TEST(Policy, SmallWorkAndSlicesStayOnTheCpu) {
  Accelerated accelerated({.min_bytes = 1000});
  EXPECT_FALSE(accelerated.accelerator().Wants(999, false));
  EXPECT_TRUE(accelerated.accelerator().Wants(1000, false));
  EXPECT_FALSE(accelerated.accelerator().Wants(1000, true));
  // Rows long enough to be slices of their diagonals.
  accelerated.engine().Whole(DenseAlibi(20, 2000));
  EXPECT_EQ(accelerated.log().launches, 0);
  accelerated.engine().Whole(Large());
  EXPECT_EQ(accelerated.log().launches, 1);
}

TEST(KernelsOnACpuDeathTest, CheckIndices) {
  int32_t numbers[4] = {};
  const DeviceArray<int32_t> array(numbers, 4);
  EXPECT_EQ(&array[3], numbers + 3);
  EXPECT_DEATH(array[4], "index 4 in an array of length 4");
  EXPECT_DEATH(array[-1], "index -1 in an array of length 4");
}

}  // namespace
}  // namespace attnbias::accelerator_test
