// SPDX-License-Identifier: Apache-2.0
// Whatever an accelerator makes has the CPU's bits, and where it gives up the
// CPU goes on. The lines that run on the CPU here are those that a device runs;
// where there is a device, it runs them too.
#include "core/kernel/cuda/accelerator.h"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "core/encoding/sinusoid/sinusoid.h"
#include "core/encoding/spec/alibi.h"
#include "core/encoding/spec/rotary.h"
#include "core/encoding/spec/sinusoidal.h"
#include "core/encoding/spec/swin.h"
#include "core/encoding/spec/t5.h"
#include "core/encoding/spec/tupe.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cpu_device.h"
#include "tests/testing/engine_harness.h"

namespace attnbias::accelerator_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr DataType kFloats[] = {DataType::kF64, DataType::kF32, DataType::kF16,
                                DataType::kBF16};

class Fallbacks final : public AcceleratorObserver {
 public:
  void OnMade(int64_t bytes) override { made_bytes_ += bytes; }
  void OnFallback(const absl::Status& why, bool for_good) override {
    messages_.push_back(std::string(why.message()) +
                        (for_good ? " for good" : " for once"));
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
  explicit Accelerated(const AcceleratorOptions& options,
                       std::unique_ptr<Device> device = nullptr)
      : accelerator_(device != nullptr ? std::move(device)
                                       : std::make_unique<CpuDevice>(&log_),
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

  // A device of its own for every engine.
  static std::unique_ptr<Device> Open() {
    return GetParam() == Place::kCuda ? *OpenCudaDevice() : nullptr;
  }

  static void ExpectCpuBytes(const TensorSpec& spec) {
    Accelerated accelerated(Open());
    const std::string bytes = accelerated.engine().Whole(spec);
    EXPECT_EQ(bytes, EngineHarness().Whole(spec));
    EXPECT_EQ(accelerated.fallbacks().made_bytes(),
              static_cast<int64_t>(bytes.size()));
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
using AcceleratedSinusoids = OnDevice;
INSTANTIATE_TEST_SUITE_P(, AcceleratedExpansion, ::testing::ValuesIn(kPlaces),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(, AcceleratedSinusoids, ::testing::ValuesIn(kPlaces),
                         NameOf);

PairExtent Pair(int64_t query_length, int64_t key_length) {
  PairExtent pair;
  pair.query_length = query_length;
  pair.key_length = key_length;
  pair.query_offset = key_length - query_length;
  return pair;
}

std::vector<int64_t> RandomPositions(int64_t count, int64_t length) {
  std::mt19937 random(5);
  std::vector<int64_t> positions(count);
  for (int64_t& position : positions) {
    position = std::uniform_int_distribution<int64_t>(0, length - 1)(random);
  }
  return positions;
}

// All ways to cut and to list pairs.
std::vector<PairExtent> Extents(int64_t num_heads) {
  std::vector<PairExtent> extents = {Pair(1, 1), Pair(3, 5), Pair(37, 61),
                                     Pair(64, 64), Pair(2, 4099)};
  PairExtent window = Pair(37, 61);
  window.queries = Range{25, 31};
  window.keys = Range{3, 40};
  window.heads = Range{1, num_heads};
  extents.push_back(window);
  PairExtent lists;
  lists.query_positions = RandomPositions(7, 90);
  lists.key_positions = RandomPositions(33, 90);
  extents.push_back(lists);
  lists.key_positions.reset();
  lists.key_length = 70;
  extents.push_back(lists);
  return extents;
}

std::vector<std::optional<Mask>> Masks() {
  return {std::nullopt, Mask{.causal = true},
          Mask{.causal = true, .window_left = 6, .fill = Lowest()},
          Mask{.window_left = 3, .window_right = 11, .fill = -5.0}};
}

TEST_P(AcceleratedExpansion, OfPairsHasTheCpusBytes) {
  const int64_t heads = 3;
  const EncodingSpec encodings[] = {
      T5Spec{.num_heads = heads,
             .bidirectional = true,
             .table = RandomTable({32, heads}, 1)},
      AlibiSpec{.num_heads = heads, .variant = AlibiVariant::kKeyFromStart},
      TupeSpec{.num_heads = heads,
               .relative_table = RandomTable({33, heads}, 1),
               .reset_class_token = true}};
  for (const EncodingSpec& encoding : encodings) {
    for (const PairExtent& extent : Extents(heads)) {
      for (const auto& mask : Masks()) {
        for (const DataType type : kFloats) {
          ExpectCpuBytes(
              {encoding,
               extent,
               {.data_type = type, .form = Form::kDense, .mask = mask}});
        }
      }
    }
  }
}

TEST_P(AcceleratedExpansion, OfIndicesHasTheCpusBytes) {
  const TensorSpec spec = {T5Spec{.num_heads = 3, .bidirectional = true},
                           Pair(21, 90),
                           {.form = Form::kDense, .values = Values::kBuckets}};
  ExpectCpuBytes(spec);
}

TEST_P(AcceleratedExpansion, OfGridsHasTheCpusBytes) {
  const EncodingSpec encodings[] = {SwinSpec{3, 5, 2, RandomTable({45, 2}, 1)},
                                    BeitSpec{3, 5, 2, RandomTable({48, 2}, 1)}};
  const GridExtent extents[] = {{},
                                {.queries = Range{0, 1}},
                                {.queries = Range{2, 11}, .keys = Range{0, 9}}};
  for (const EncodingSpec& encoding : encodings) {
    for (const GridExtent& extent : extents) {
      for (const DataType type : kFloats) {
        ExpectCpuBytes(
            {encoding, extent, {.data_type = type, .form = Form::kDense}});
      }
    }
  }
}

TEST_P(AcceleratedExpansion, ReadInOrderIsMadeAhead) {
  Accelerated accelerated(Open());
  const TensorSpec spec = {
      AlibiSpec{.num_heads = 4}, Pair(50, 50), {.form = Form::kDense}};
  const PlanPtr plan = accelerated.engine().Plan(spec);
  const PayloadPtr payload = accelerated.engine().Get(plan);
  std::string bytes;
  for (int64_t offset = 0; offset < plan->total_bytes(); offset += 4096) {
    const int64_t size = std::min<int64_t>(4096, plan->total_bytes() - offset);
    bytes += EngineHarness::Bytes(Read(*payload, offset, size));
  }
  EXPECT_EQ(bytes, EngineHarness().Whole(spec));
  EXPECT_EQ(accelerated.fallbacks().made_bytes(), plan->total_bytes());
}

TEST_P(AcceleratedSinusoids, HaveTheCpusBytes) {
  std::vector<SinusoidalSpec> specs;
  for (const auto layout :
       {SinusoidalLayout::kInterleaved, SinusoidalLayout::kConcatenated,
        SinusoidalLayout::kTensor2Tensor}) {
    for (const int64_t dim : {3, 16, 37, 128}) {
      specs.push_back({.dim = dim, .layout = layout});
    }
  }
  for (const SinusoidalSpec& sinusoidal : specs) {
    for (const Range positions :
         {Range{0, 1}, Range{0, 1500},
          Range{(int64_t{1} << 39) - 77, (int64_t{1} << 39) + 900}}) {
      for (const DataType type : kFloats) {
        for (const double scale : {1.0, -3.25}) {
          TensorSpec spec = {sinusoidal,
                             TableExtent{.positions = positions},
                             {.data_type = type}};
          spec.output.scale = scale;
          Accelerated accelerated(Open());
          ASSERT_EQ(accelerated.engine().Whole(spec),
                    EngineHarness().Whole(spec));
          EXPECT_EQ(accelerated.fallbacks().made_bytes() > 0,
                    type != DataType::kF64);
          EXPECT_THAT(accelerated.fallbacks().messages(), IsEmpty());
        }
      }
    }
  }
}

TEST_P(AcceleratedSinusoids, InPiecesHaveTheCpusBytes) {
  const TensorSpec spec = {SinusoidalSpec{.dim = 512},
                           TableExtent{.positions = Range{-3000, 9001}},
                           {.data_type = DataType::kBF16}};
  Accelerated accelerated(Open());
  EXPECT_EQ(accelerated.engine().Whole(spec), EngineHarness().Whole(spec));
  EXPECT_GT(accelerated.fallbacks().made_bytes(), 0);
}

// Positions whose elements two doubles round wrongly (docs/numerics.md).
TEST_P(AcceleratedSinusoids, DoubtsAreResolved) {
  for (const int64_t position : {4524508, 7086789}) {
    const TensorSpec spec = {
        SinusoidalSpec{.dim = 128},
        TableExtent{.positions = Range{position - 2, position + 3}},
        {}};
    Accelerated accelerated(Open());
    const std::vector<double> numbers = accelerated.engine().Numbers(spec);
    EXPECT_GT(accelerated.fallbacks().made_bytes(), 0);
    for (int64_t i = 0; i < 5 * 128; ++i) {
      float exact;
      ReferenceSinusoidal(*spec.encoding.As<SinusoidalSpec>(),
                          position - 2 + i / 128, i % 128, {DataType::kF32},
                          reinterpret_cast<std::byte*>(&exact));
      ASSERT_EQ(numbers[i], exact) << position << " " << i;
    }
  }
}

TEST_P(AcceleratedSinusoids, RotaryTablesHaveTheCpusBytes) {
  for (const auto layout : {RotaryLayout::kHalf, RotaryLayout::kInterleaved}) {
    const TensorSpec spec = {RotarySpec{.head_dim = 64, .layout = layout},
                             TableExtent{.positions = Range{0, 3000}},
                             {.data_type = DataType::kF16}};
    Accelerated accelerated(Open());
    EXPECT_EQ(accelerated.engine().Whole(spec), EngineHarness().Whole(spec));
    EXPECT_GT(accelerated.fallbacks().made_bytes(), 0);
  }
}

const TensorSpec& Large() {
  static const auto& spec = *new TensorSpec{
      AlibiSpec{.num_heads = 4}, Pair(50, 50), {.form = Form::kDense}};
  return spec;
}

TEST(Fallback, ABrokenDeviceIsGivenUpOnce) {
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
    EXPECT_EQ(accelerated.engine().Numbers(
                  {SinusoidalSpec{.dim = 64}, TableExtent{Range{0, 99}}, {}}),
              EngineHarness().Numbers(
                  {SinusoidalSpec{.dim = 64}, TableExtent{Range{0, 99}}, {}}));
    EXPECT_THAT(accelerated.fallbacks().messages(),
                ElementsAre("CUDA: the device is broken for good"));
    EXPECT_FALSE(accelerated.accelerator().Wants(int64_t{1} << 40, false));
  }
}

TEST(Fallback, AFullDeviceIsTriedAgain) {
  Accelerated accelerated;
  for (const int64_t memory : {0, 1000, 20000}) {
    accelerated.log().memory_bytes = memory;
    EXPECT_EQ(accelerated.engine().Whole(Large()),
              EngineHarness().Whole(Large()));
    EXPECT_EQ(accelerated.engine().Whole({SinusoidalSpec{.dim = 64 + memory},
                                          TableExtent{Range{0, 99}},
                                          {}}),
              EngineHarness().Whole({SinusoidalSpec{.dim = 64 + memory},
                                     TableExtent{Range{0, 99}},
                                     {}}));
  }
  EXPECT_EQ(accelerated.log().launches, 0);
  EXPECT_THAT(accelerated.fallbacks().messages(),
              ElementsAre("CUDA: out of memory for once"));
  accelerated.log().memory_bytes = int64_t{1} << 40;
  EXPECT_EQ(accelerated.engine().Whole(Large()),
            EngineHarness().Whole(Large()));
  EXPECT_GT(accelerated.log().launches, 0);
}

TEST(Fallback, MoreDoubtsThanRoomGoToTheCpu) {
  // An interval as wide as the numbers themselves leaves every element in
  // doubt.
  const std::vector<double> anchor(8, 0.5);
  const std::vector<double> rotations(8 * 100, 0.5);
  const std::vector<double> bound(8, 1.0);
  Accelerated accelerated;
  const SinusoidBlocks blocks = {.block = {.anchor_sin = anchor.data(),
                                           .anchor_cos = anchor.data(),
                                           .rotation_sin = rotations.data(),
                                           .rotation_cos = rotations.data(),
                                           .sin_bound = bound.data(),
                                           .cos_bound = 1,
                                           .rows = 100,
                                           .pairs = 8,
                                           .sines = 8,
                                           .cosines = 8,
                                           .width = 16,
                                           .pair_stride = 2,
                                           .cos_offset = 1},
                                 .block_rows = 100};
  std::vector<float> out(1600);
  std::vector<int64_t> undecided;
  EXPECT_FALSE(accelerated.accelerator().FillSinusoids(
      blocks, reinterpret_cast<std::byte*>(out.data()), &undecided));
  EXPECT_THAT(accelerated.fallbacks().messages(),
              ElementsAre(HasSubstr("undecided")));
}

TEST(Policy, SmallWorkAndSlicesStayOnTheCpu) {
  Accelerated accelerated({.min_bytes = 1000});
  EXPECT_FALSE(accelerated.accelerator().Wants(999, false));
  EXPECT_TRUE(accelerated.accelerator().Wants(1000, false));
  EXPECT_FALSE(accelerated.accelerator().Wants(1000, true));
  // Rows long enough to be slices of their diagonals.
  const TensorSpec sliced = {
      AlibiSpec{.num_heads = 2}, Pair(20, 2000), {.form = Form::kDense}};
  accelerated.engine().Whole(sliced);
  EXPECT_EQ(accelerated.log().launches, 0);
  accelerated.engine().Whole(Large());
  EXPECT_EQ(accelerated.log().launches, 1);
}

TEST(KernelsOnACpuDeathTest, CheckTheirIndices) {
  int32_t numbers[4] = {};
  const DeviceArray<int32_t> array(numbers, 4);
  EXPECT_EQ(&array[3], numbers + 3);
  EXPECT_DEATH(array[4], "index 4 of an array of 4");
  EXPECT_DEATH(array[-1], "index -1 of an array of 4");
}

}  // namespace
}  // namespace attnbias::accelerator_test
