// SPDX-License-Identifier: Apache-2.0
// What encodings say of their evaluators' memory, against what these take. A
// program of its own, for it counts all that operator new and MPFR hand out.
#include <gmp.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <set>
#include <string_view>
#include <vector>

#include "core/base/caller.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/spec/alibi.h"
#include "core/encoding/spec/deberta.h"
#include "core/encoding/spec/dynamic_position_bias.h"
#include "core/encoding/spec/fire.h"
#include "core/encoding/spec/kerple.h"
#include "core/encoding/spec/learned_absolute.h"
#include "core/encoding/common/limits.h"
#include "core/encoding/spec/relative_sinusoid.h"
#include "core/encoding/spec/relative_table.h"
#include "core/encoding/spec/rotary.h"
#include "core/encoding/spec/sandwich.h"
#include "core/encoding/spec/sinusoidal.h"
#include "core/encoding/spec/swin.h"
#include "core/encoding/spec/swin_v2.h"
#include "core/encoding/spec/t5.h"
#include "core/encoding/spec/tupe.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/engine_harness.h"
#include "tests/testing/status_matchers.h"

namespace attnbias {
namespace {

std::atomic<int64_t> used_bytes = 0;
std::atomic<int64_t> peak_bytes = 0;

// What malloc takes for it.
int64_t SizeOfBlock(void* block) {
  return static_cast<int64_t>(malloc_usable_size(block) + sizeof(size_t));
}

[[gnu::noinline]] void* Count(void* block) {
  if (block == nullptr) std::abort();
  const int64_t used = used_bytes += SizeOfBlock(block);
  int64_t peak = peak_bytes;
  while (used > peak && !peak_bytes.compare_exchange_weak(peak, used)) {
  }
  return block;
}

[[gnu::noinline]] void Release(void* block) {
  if (block == nullptr) return;
  used_bytes -= SizeOfBlock(block);
  std::free(block);
}

void* Reallocate(void* block, size_t /*old_size*/, size_t size) {
  used_bytes -= SizeOfBlock(block);
  return Count(std::realloc(block, size));
}

// Before anything computes.
[[maybe_unused]] const bool counts_mpfr = [] {
  mp_set_memory_functions([](size_t size) { return Count(std::malloc(size)); },
                          &Reallocate,
                          [](void* block, size_t) { Release(block); });
  return true;
}();

}  // namespace
}  // namespace attnbias

// The library's other forms call these.
void* operator new(size_t size) {
  return attnbias::Count(std::malloc(std::max<size_t>(size, 1)));
}
void* operator new(size_t size, std::align_val_t alignment) {
  const auto line = static_cast<size_t>(alignment);
  return attnbias::Count(std::aligned_alloc(
      line, (std::max<size_t>(size, 1) + line - 1) / line * line));
}
void operator delete(void* block) noexcept { attnbias::Release(block); }
void operator delete(void* block, size_t) noexcept { attnbias::Release(block); }
void operator delete(void* block, std::align_val_t) noexcept {
  attnbias::Release(block);
}

namespace attnbias {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int64_t kSlack = int64_t{256} << 10;

Table Small(const std::vector<int64_t>& shape) {
  return RandomTable(shape, 1, 0.01F);
}

std::vector<EncodingSpec> Sinusoids() {
  constexpr auto kTensor2Tensor = SinusoidalLayout::kTensor2Tensor;
  return {SinusoidalSpec{.dim = kMaxDim},
          SinusoidalSpec{.dim = kMaxDim - 1, .layout = kTensor2Tensor},
          SinusoidalSpec{.dim = 1},
          SinusoidalSpec{.dim = 700},
          MultiAxisSinusoidalSpec{.dim = kMaxDim,
                                  .num_axes = 1,
                                  .layout = MultiAxisLayout::kInterleaved},
          MultiAxisSinusoidalSpec{.dim = kMaxDim,
                                  .num_axes = kMaxAxes,
                                  .layout = MultiAxisLayout::kTensor2Tensor},
          MultiAxisSinusoidalSpec{.dim = kMaxDim,
                                  .num_axes = kMaxAxes,
                                  .layout = MultiAxisLayout::kInterleaved,
                                  .axis_lengths = {1, 2, 3, 4},
                                  .axis_offset = -0.5},
          TransformerXlSpec{.dim = kMaxDim},
          XlnetSpec{.dim = kMaxDim, .clamp_len = 3},
          ConformerSpec{.dim = kMaxDim},
          SymmetricSinusoidalSpec{.dim = kMaxDim}};
}

std::vector<EncodingSpec> Rotations() {
  constexpr int64_t kPairs = kMaxDim / 2;
  std::vector<double> alternating(kPairs, 1);
  for (int64_t i = 0; i < kPairs; i += 2) alternating[i] = 0;
  std::vector<double> one(kPairs);
  one[0] = 1;
  const RotarySpec plain = {.head_dim = kMaxDim};
  RotarySpec interleaved = plain;
  interleaved.layout = RotaryLayout::kInterleaved;
  RotarySpec float32 = plain;
  float32.angle = AnglePrecision::kFloat32;
  RotarySpec partly = plain;
  partly.rope_type = RopeType::kProportional;
  partly.partial_rotary_factor = 0.25;
  RotarySpec longrope = plain;
  longrope.rope_type = RopeType::kLongrope;
  longrope.original_max_position_embeddings = 4096;
  longrope.sequence_length = 8192;
  longrope.factor = 32;
  longrope.short_factor.assign(kPairs, 1.5);
  longrope.long_factor.assign(kPairs, 2.5);
  RotarySpec given = plain;
  given.inverse_frequencies = alternating;
  RotarySpec nearly_none = plain;
  nearly_none.inverse_frequencies = one;
  return {plain,
          interleaved,
          float32,
          partly,
          longrope,
          given,
          nearly_none,
          RotarySpec{.head_dim = 2},
          XposSpec{.dim = kMaxDim,
                   .scale_base = 1e9,
                   .gamma = 1e6,
                   .sequence_length = kMaxPosition},
          XposSpec{.dim = 64, .sequence_length = 4096}};
}

std::vector<EncodingSpec> Biases() {
  std::vector<double> many(kMaxNumHeads, 0.3);
  return {AlibiSpec{.num_heads = kMaxNumHeads},
          AlibiSpec{.num_heads = kMaxNumHeads - 1},
          AlibiSpec{.num_heads = kMaxNumHeads, .slopes = many},
          AlibiSpec{.num_heads = 8},
          KerpleSpec{.kernel = KerpleKernel::kLog,
                     .p = many,
                     .a = many,
                     .num_heads = kMaxNumHeads},
          KerpleSpec{.kernel = KerpleKernel::kPower,
                     .p = {0.3},
                     .a = {0.3},
                     .num_heads = kMaxNumHeads},
          SandwichSpec{.num_heads = 8, .dim = kMaxDim},
          SandwichSpec{.num_heads = kMaxNumHeads, .dim = 8},
          DebertaSpec{.bucket_size = 4096, .max_position = 1 << 30},
          T5Spec{.num_heads = 8,
                 .num_buckets = 4096,
                 .max_distance = 100000,
                 .bidirectional = false,
                 .table = Small({4096, 8})},
          LearnedRelativeSpec{.table = Small({8191, 8}),
                              .num_heads = 8,
                              .left = 4095,
                              .right = 4095}};
}

std::vector<EncodingSpec> Networks() {
  constexpr int64_t kOthers = kMaxNetworkNumbers / kMaxHidden;
  const auto layer = [](int64_t inputs, int64_t outputs) {
    return PositionMlpLayer{.weight = Small({outputs, inputs}),
                            .bias = Small({outputs})};
  };
  PositionMlpLayer normed = layer(1, kMaxHidden);
  normed.norm_weight = Small({kMaxHidden});
  normed.norm_bias = Small({kMaxHidden});
  return {FireSpec{.num_heads = kOthers,
                   .hidden_weight = Small({kMaxHidden, 1}),
                   .hidden_bias = Small({kMaxHidden}),
                   .output_weight = Small({kOthers, kMaxHidden}),
                   .output_bias = Small({kOthers})},
          FireSpec{.num_heads = kMaxNumHeads,
                   .hidden_weight = Small({kOthers, 1}),
                   .output_weight = Small({kMaxNumHeads, kOthers})},
          FireSpec{.num_heads = 1,
                   .hidden_weight = Small({1, 1}),
                   .output_weight = Small({1, 1})},
          DynamicPositionBiasSpec{
              .num_heads = kOthers / 2,
              .layers = {normed, layer(kMaxHidden, kOthers / 2)}},
          DynamicPositionBiasSpec{
              .num_heads = 2047, .layers = {layer(1, 2047), layer(2047, 2047)}},
          SwinV2Spec{.window_height = kMaxWindowSide,
                     .window_width = kMaxWindowSide,
                     .num_heads = kOthers,
                     .hidden_weight = Small({kMaxHidden, 2}),
                     .hidden_bias = Small({kMaxHidden}),
                     .output_weight = Small({kOthers, kMaxHidden})}};
}

std::vector<EncodingSpec> Tables() {
  constexpr int64_t kDisplacements = 63 * 63;
  return {LearnedAbsoluteSpec{.table = Small({512, 4096}),
                              .interpolation = Interpolation::kLinear,
                              .interpolated_length = 1 << 20},
          ShawSpec{.table = Small({8, 127, 512}), .left = 63, .right = 63},
          SwinSpec{32, 32, 64, Small({kDisplacements, 64})},
          BeitSpec{32, 32, 64, Small({kDisplacements + 3, 64})}};
}

TupeSpec TupeOf(int64_t rows, int64_t dim) {
  return {.num_heads = 4,
          .position_table = Small({rows, dim}),
          .query_weight = Small({dim, dim}),
          .query_bias = Small({dim}),
          .key_weight = Small({dim, dim}),
          .key_bias = Small({dim}),
          .norm_weight = Small({dim}),
          .norm_bias = Small({dim})};
}

std::vector<EncodingSpec> Tupes() {
  return {TupeSpec{.num_heads = 8,
                   .relative_table = Small({4096, 8}),
                   .num_buckets = 4096,
                   .max_distance = 100000},
          TupeOf(kMaxNetworkNumbers / 32, 32), TupeOf(70, 1024),
          TupeOf(2, 2048)};
}

// What preparing an evaluator, and one Fill by it, take at the most.
int64_t PeakOf(const Encoding& encoding, DataType type) {
  constexpr int64_t kMostNumbers = int64_t{1} << 18;
  const Range domain = encoding.domain;
  const bool is_dense = encoding.structure == Structure::kDense;
  const int64_t first = is_dense ? 0 : domain.begin;
  const int64_t count =
      std::clamp<int64_t>(kMostNumbers / (encoding.lanes * encoding.width), 1,
                          std::min<int64_t>(domain.end - first, 64));
  // FIRE keeps the logarithms of nearer keys than that.
  const int64_t query =
      is_dense ? std::min<int64_t>(domain.end, 1 << 18) - 1 : 0;
  const int64_t lane_bytes = count * encoding.width * SizeOf(type);
  AlignedBuffer out(encoding.lanes * lane_bytes);
  const int64_t before = used_bytes;
  peak_bytes = before;
  const EvaluatorPtr evaluator =
      encoding.prepare({type}, *SupportedKernelSets().front());
  evaluator->Fill({{0, encoding.lanes}, {first, first + count}, query},
                  out.data(), lane_bytes);
  return peak_bytes - before;
}

struct Extremes {
  const char* name;
  std::vector<EncodingSpec> (*make)();
};

constexpr Extremes kAllExtremes[] = {
    {"Sinusoids", Sinusoids}, {"Rotations", Rotations}, {"Biases", Biases},
    {"Networks", Networks},   {"Tables", Tables},       {"Tupes", Tupes}};

class ExtremeEvaluators : public ::testing::TestWithParam<Extremes> {};

TEST_P(ExtremeEvaluators, TakeNoMoreThanSaidNorMuchLess) {
  for (const EncodingSpec& spec : GetParam().make()) {
    const auto encoding = MakeEncoding(spec, {});
    ASSERT_THAT(encoding, IsOk()) << spec.name();
    const int64_t said = (*encoding)->evaluator_bytes;
    const std::vector<DataType> types =
        (*encoding)->has_indices ? std::vector{DataType::kI32}
                                 : std::vector{DataType::kF64, DataType::kF32};
    for (const DataType type : types) {
      const int64_t taken = PeakOf(**encoding, type);
      EXPECT_LE(taken, said + kSlack) << spec.name() << " " << NameOf(type);
      EXPECT_LE(said, 4 * taken + kSlack) << spec.name() << " " << NameOf(type);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EvaluatorMemory, ExtremeEvaluators,
                         ::testing::ValuesIn(kAllExtremes),
                         [](const auto& info) { return info.param.name; });

TEST(EvaluatorMemory, ExtremesAreOfEveryEncoding) {
  std::set<std::string_view> names;
  for (const Extremes& extremes : kAllExtremes) {
    for (const EncodingSpec& spec : extremes.make()) names.insert(spec.name());
  }
  EXPECT_THAT(EncodingRegistration::Names(), ElementsAreArray(names));
}

// Those that take longest; that they end early shows in what they take.
TEST(EvaluatorMemory, WhatNobodyWantsIsNotMadeToItsEnd) {
  Caller caller;
  caller.Cancel();
  const MakingScope scope(&caller, /*executor=*/nullptr);
  for (const EncodingSpec& spec : std::vector<EncodingSpec>{
           SinusoidalSpec{.dim = kMaxDim}, RotarySpec{.head_dim = kMaxDim},
           XposSpec{.dim = kMaxDim, .sequence_length = 4096},
           AlibiSpec{.num_heads = kMaxNumHeads - 1}}) {
    const EncodingPtr encoding = *MakeEncoding(spec, {});
    const int64_t before = used_bytes;
    peak_bytes = before;
    encoding->prepare({DataType::kF32}, *SupportedKernelSets().front());
    EXPECT_LT(2 * (peak_bytes - before), encoding->evaluator_bytes)
        << spec.name();
  }
}

TEST(EvaluatorMemory, BeyondTheWholeBudgetNothingIsPrepared) {
  EngineHarness engine({.memory_budget_bytes = int64_t{32} << 20});
  const PlanPtr plan =
      engine.Plan({XposSpec{.dim = kMaxDim, .sequence_length = 4096},
                   TableExtent{.positions = Range{0, 4096}},
                   {}});
  const int64_t before = used_bytes;
  peak_bytes = before;
  EXPECT_THAT(engine.TryGet(plan),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the whole memory budget")));
  EXPECT_LE(peak_bytes - before, kSlack);
}

}  // namespace
}  // namespace attnbias
