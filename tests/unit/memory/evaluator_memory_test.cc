// SPDX-License-Identifier: Apache-2.0
// Compares the memory that encodings declare for their evaluators with measurements. This is a
// separate program because it counts every allocation by operator new and MPFR.
#include <gmp.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "core/base/executor.h"
#include "core/encoding/encoding.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/engine_harness.h"
#include "tests/unit/support/filled.h"

namespace attnbias {
namespace {

std::atomic<int64_t> used_bytes = 0;
std::atomic<int64_t> peak_bytes = 0;

// Returns the size that the block occupies in malloc's heap.
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

// Set before any computation.
[[maybe_unused]] const bool counts_mpfr = [] {
  mp_set_memory_functions([](size_t size) { return Count(std::malloc(size)); }, &Reallocate,
                          [](void* block, size_t) { Release(block); });
  return true;
}();

}  // namespace
}  // namespace attnbias

// The library's other overloads call these.
void* operator new(size_t size) { return attnbias::Count(std::malloc(std::max<size_t>(size, 1))); }
void* operator new(size_t size, std::align_val_t alignment) {
  const auto line = static_cast<size_t>(alignment);
  return attnbias::Count(
      std::aligned_alloc(line, (std::max<size_t>(size, 1) + line - 1) / line * line));
}
void operator delete(void* block) noexcept { attnbias::Release(block); }
void operator delete(void* block, size_t) noexcept { attnbias::Release(block); }
void operator delete(void* block, std::align_val_t) noexcept { attnbias::Release(block); }

namespace attnbias {
namespace {

constexpr int64_t kSlack = int64_t{256} << 10;

// Makes a table of equal numbers, since generating random ones would take longer than the code
// being measured.
v1::TableRef Small(const std::vector<int64_t>& shape) {
  int64_t size = 1;
  for (const int64_t length : shape) size *= length;
  return Ref(TableOf<float>(shape, std::vector<double>(size, 0.01)));
}

std::vector<v1::TensorSpec> Specs(std::initializer_list<const char*> texts) {
  std::vector<v1::TensorSpec> specs;
  for (const char* text : texts) specs.push_back(Parse<v1::TensorSpec>(text));
  return specs;
}

// Fields have the maximum or minimum that the contract allows.
std::vector<v1::TensorSpec> Sinusoids() {
  return Specs({
      "sinusoidal {dim: 65536}",
      "sinusoidal {dim: 65535 odd: ODD_COLUMN_ZERO "
      "  columns: COLUMNS_SINES_COSINES ladder {timescales {}}}",
      "sinusoidal {dim: 1}",
      "sinusoidal {dim: 700}",
      "sinusoidal {dim: 65536 axes {}}",
      "sinusoidal {dim: 65536 columns: COLUMNS_COSINES_SINES}",
      "sinusoidal {dim: 65536 axes {} axes {} axes {} axes {ladder {}}}",
      "sinusoidal {dim: 65536 across_axes: true "
      "  columns: COLUMNS_SINES_COSINES "
      "  axes {length: 1 offset: -0.5} axes {length: 2 offset: -0.5} "
      "  axes {length: 3 offset: -0.5} axes {length: 4 offset: -0.5}}",
      "relative_sinusoidal {dim: 65536 causal: true}",
      "relative_sinusoidal {dim: 65536 left: 3 right: 3}",
      "relative_sinusoidal {dim: 65536 symmetric: true}",
  });
}

// The stated memory grows with head_dim, so not every case needs the maximum.
std::vector<v1::TensorSpec> Rotations() {
  std::vector<v1::TensorSpec> specs = Specs({
      "rotary {head_dim: 65536}",
      "rotary {head_dim: 16384 layout: ROTARY_LAYOUT_INTERLEAVED}",
      "rotary {head_dim: 16384 angle: ANGLE_PRECISION_FLOAT32}",
      "rotary {head_dim: 16384 proportional {} partial_rotary_factor: 0.25}",
      "rotary {head_dim: 2}",
      "rotary {head_dim: 16384 axes {ladder {}} axes {ladder {}}}",
      "rotary {head_dim: 16384 axes {offset: 0.5} axes {offset: 0.1} "
      "  axes {offset: 3 scale: -2} axes {ladder {timescales {}}}}",
      "rotary {head_dim: 65536 "
      "  decay {scale_base: 1e9 gamma: 1e6 center: 1099511627776}}",
      "rotary {head_dim: 64 decay {center: 2048}}",
      "rotary {head_dim: 16384 longrope {factor: 32 "
      "  original_max_position_embeddings: 4096 sequence_length: 8192}}",
  });
  v1::Longrope& longrope = *specs.back().mutable_rotary()->mutable_longrope();
  auto alternating = Parse<v1::TensorSpec>("rotary {head_dim: 16384}");
  v1::TensorSpec nearly_none = alternating;
  for (int pair = 0; pair < 8192; ++pair) {
    longrope.add_short_factor(1.5);
    longrope.add_long_factor(2.5);
    alternating.mutable_rotary()->add_inverse_frequencies(pair % 2);
    nearly_none.mutable_rotary()->add_inverse_frequencies(pair == 0 ? 1 : 0);
  }
  specs.push_back(alternating);
  specs.push_back(nearly_none);
  return specs;
}

std::vector<v1::TensorSpec> Biases() {
  std::vector<v1::TensorSpec> specs = Specs({
      "alibi {num_heads: 65536}",
      "alibi {num_heads: 65535}",
      "alibi {num_heads: 8}",
      "kerple {kernel: KERPLE_KERNEL_POWER p: 0.3 a: 0.3 num_heads: 65536}",
      "deberta {bucket_size: 4096 max_position: 1073741824}",
      "t5 {num_buckets: 4096 max_distance: 100000 bidirectional: false}",
      "learned_relative {left: 4095 right: 4095}",
      "kerple {kernel: KERPLE_KERNEL_LOG}",
      "alibi {}",
  });
  for (v1::TensorSpec& spec : specs) {
    if (spec.has_t5()) *spec.mutable_t5()->mutable_table() = Small({4096, 8});
    if (spec.has_learned_relative()) {
      *spec.mutable_learned_relative()->mutable_scalars() = Small({8191, 8});
    }
  }
  v1::Alibi& alibi = *specs[specs.size() - 1].mutable_alibi();
  v1::Kerple& kerple = *specs[specs.size() - 2].mutable_kerple();
  for (int head = 0; head < kMaxNumHeads; ++head) {
    alibi.add_slopes(0.3);
    kerple.add_p(0.3);
    kerple.add_a(0.3);
  }
  return specs;
}

v1::TensorSpec Fire(int64_t hidden, int64_t heads) {
  v1::TensorSpec spec;
  *spec.mutable_fire()->mutable_hidden_weight() = Small({hidden, 1});
  *spec.mutable_fire()->mutable_output_weight() = Small({heads, hidden});
  return spec;
}

// Returns an MLP with one layer for each number of outputs.
v1::TensorSpec Mlp(std::initializer_list<int64_t> outputs,
                   const std::string& fields = "activation: ACTIVATION_SILU") {
  auto spec = Parse<v1::TensorSpec>("mlp_bias {" + fields + "}");
  int64_t inputs = std::max(spec.mlp_bias().window_size(), 1);
  for (const int64_t count : outputs) {
    auto& layer = *spec.mutable_mlp_bias()->add_layers();
    *layer.mutable_weight() = Small({count, inputs});
    *layer.mutable_bias() = Small({count});
    inputs = count;
  }
  return spec;
}

std::vector<v1::TensorSpec> Networks() {
  constexpr int64_t kOthers = kMaxNetworkNumbers / kMaxHidden;
  v1::TensorSpec biased = Fire(kMaxHidden, kOthers);
  *biased.mutable_fire()->mutable_hidden_bias() = Small({kMaxHidden});
  *biased.mutable_fire()->mutable_output_bias() = Small({kOthers});
  v1::TensorSpec normed = Mlp({kMaxHidden, kOthers / 2});
  auto& layer = *normed.mutable_mlp_bias()->mutable_layers(0);
  *layer.mutable_norm_weight() = Small({kMaxHidden});
  *layer.mutable_norm_bias() = Small({kMaxHidden});
  const v1::TensorSpec swin = Mlp({kMaxHidden, kOthers - 2},
                                  "window: [256, 256] activation: ACTIVATION_RELU "
                                  "coordinates: COORDINATES_LOG2_NORMALIZED "
                                  "output: MLP_OUTPUT_SIGMOID_16");
  return {biased, Fire(kOthers, kMaxNumHeads), Fire(1, 1), normed, Mlp({2047, 2047}), swin};
}

std::vector<v1::TensorSpec> Tables() {
  constexpr int64_t kDisplacements = 63 * 63;
  std::vector<v1::TensorSpec> specs = Specs(
      {"learned_absolute {resample {target: 1048576}}", "learned_relative {left: 63 right: 63}",
       "grid_relative {window: [32, 32]}", "grid_relative {window: [32, 32] class_token: true}",
       "learned_absolute {resample {target: 1 antialias: true "
       "  filter: FILTER_CUBIC}}"});
  *specs[0].mutable_learned_absolute()->mutable_table() = Small({512, 4096});
  *specs[1].mutable_learned_relative()->mutable_vectors() = Small({8, 127, 512});
  *specs[2].mutable_grid_relative()->mutable_table() = Small({kDisplacements, 64});
  *specs[3].mutable_grid_relative()->mutable_table() = Small({kDisplacements + 3, 64});
  // Every row has a weight.
  *specs[4].mutable_learned_absolute()->mutable_table() = Small({16385, 63});
  return specs;
}

v1::TensorSpec TupeOf(int64_t rows, int64_t dim) {
  v1::TensorSpec spec;
  v1::Tupe& tupe = *spec.mutable_tupe();
  tupe.set_num_heads(4);
  *tupe.mutable_position_table() = Small({rows, dim});
  *tupe.mutable_query_weight() = Small({dim, dim});
  *tupe.mutable_query_bias() = Small({dim});
  *tupe.mutable_key_weight() = Small({dim, dim});
  *tupe.mutable_key_bias() = Small({dim});
  *tupe.mutable_norm_weight() = Small({dim});
  *tupe.mutable_norm_bias() = Small({dim});
  return spec;
}

std::vector<v1::TensorSpec> Tupes() {
  auto buckets = Parse<v1::TensorSpec>("tupe {num_buckets: 4096 max_distance: 100000}");
  *buckets.mutable_tupe()->mutable_relative_table() = Small({4096, 8});
  return {buckets, TupeOf(kMaxNetworkNumbers / 32, 32), TupeOf(70, 1024), TupeOf(2, 2048)};
}

// Returns the peak memory used to prepare an evaluator and run one Fill.
int64_t PeakOf(const Encoding& encoding, DataType type) {
  constexpr int64_t kMostNumbers = int64_t{1} << 18;
  const Range domain = encoding.domain;
  const bool is_dense = encoding.structure == Structure::kDense;
  const int64_t first = is_dense ? 0 : domain.begin;
  const int64_t count = std::clamp<int64_t>(kMostNumbers / (encoding.lanes * encoding.width), 1,
                                            std::min<int64_t>(domain.end - first, 64));
  // FIRE caches only the logarithms of nearer keys.
  const int64_t query = is_dense ? std::min<int64_t>(domain.end, 1 << 18) - 1 : 0;
  const int64_t lane_bytes = count * encoding.width * SizeOf(type);
  AlignedBuffer out(encoding.lanes * lane_bytes);
  const int64_t before = used_bytes;
  peak_bytes = before;
  const EvaluatorPtr evaluator = encoding.prepare({type}, *SupportedKernelSets().front());
  evaluator->Fill({{0, encoding.lanes}, {first, first + count}, query}, out.data(), lane_bytes);
  return peak_bytes - before;
}

struct Extremes {
  const char* name;
  std::vector<v1::TensorSpec> (*make)();
};

constexpr Extremes kGivenExtremes[] = {{"Sinusoids", Sinusoids}, {"Rotations", Rotations},
                                       {"Biases", Biases},       {"Networks", Networks},
                                       {"Tables", Tables},       {"Tupes", Tupes}};

// Sets each number that does not depend on another field to the maximum that its rule allows.
void SetGreatest(google::protobuf::Message& encoding) {
  const auto& fields = *encoding.GetDescriptor();
  const auto& access = *encoding.GetReflection();
  for (int i = 0; i < fields.field_count(); ++i) {
    const auto* field = fields.field(i);
    const v1::FieldRule& rule = field->options().GetExtension(v1::rule);
    if (field->is_repeated() || !rule.only_with().empty() || !rule.not_with().empty()) {
      continue;
    }
    if (field->cpp_type() == field->CPPTYPE_INT32) {
      access.SetInt32(&encoding, field, static_cast<int32_t>(rule.max()));
    } else if (field->cpp_type() == field->CPPTYPE_INT64) {
      access.SetInt64(&encoding, field, static_cast<int64_t>(rule.max()));
    } else if (field->cpp_type() == field->CPPTYPE_DOUBLE) {
      access.SetDouble(&encoding, field, rule.max());
    }
  }
}

// Returns requests, derived from the rules, for the encodings for which none is listed above.
std::vector<v1::TensorSpec> Others() {
  std::set<int> given;
  for (const Extremes& extremes : kGivenExtremes) {
    for (const v1::TensorSpec& spec : extremes.make()) {
      given.insert(spec.encoding_case());
    }
  }
  std::vector<v1::TensorSpec> specs;
  const auto& all = *v1::TensorSpec::descriptor()->FindOneofByName("encoding");
  for (int i = 0; i < all.field_count(); ++i) {
    if (given.contains(all.field(i)->number())) continue;
    v1::TensorSpec& spec = specs.emplace_back();
    SetGreatest(*spec.GetReflection()->MutableMessage(&spec, all.field(i)));
  }
  return specs;
}

class ExtremeEvaluators : public ::testing::TestWithParam<Extremes> {};

TEST_P(ExtremeEvaluators, UseAtMostAndNearlyTheStatedMemory) {
  for (const v1::TensorSpec& spec : GetParam().make()) {
    const EncodingPtr encoding = MakeWith(spec);
    const int64_t said = encoding->evaluator_bytes;
    const std::vector<DataType> types = encoding->has_indices
                                            ? std::vector{DataType::kI32}
                                            : std::vector{DataType::kF64, DataType::kF32};
    for (const DataType type : types) {
      const int64_t taken = PeakOf(*encoding, type);
      EXPECT_LE(taken, said + kSlack) << encoding->name << " " << NameOf(type);
      EXPECT_LE(said, 4 * taken + kSlack) << encoding->name << " " << NameOf(type);
    }
  }
}

constexpr auto kNameOf = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(EvaluatorMemory, ExtremeEvaluators, ::testing::ValuesIn(kGivenExtremes),
                         kNameOf);
INSTANTIATE_TEST_SUITE_P(EvaluatorMemoryByRules, ExtremeEvaluators,
                         ::testing::Values(Extremes{"Others", Others}), kNameOf);

// Covers the slowest encodings. Their low memory use shows that preparation ended early.
TEST(EvaluatorMemory, CancelledPreparationStopsEarly) {
  Caller caller;
  caller.Cancel();
  const ComputeScope scope(&caller, /*executor=*/nullptr);
  for (const v1::TensorSpec& spec :
       Specs({"sinusoidal {dim: 65536}", "rotary {head_dim: 65536}",
              "rotary {head_dim: 65536 decay {}}", "alibi {num_heads: 65535}"})) {
    const EncodingPtr encoding = MakeWith(spec);
    const int64_t before = used_bytes;
    peak_bytes = before;
    encoding->prepare({DataType::kF32}, *SupportedKernelSets().front());
    EXPECT_LT(2 * (peak_bytes - before), encoding->evaluator_bytes) << encoding->name;
  }
}

TEST(EvaluatorMemory, NothingIsPreparedBeyondTheBudget) {
  EngineHarness engine({.memory_budget_bytes = int64_t{16} << 20});
  const PlanPtr plan =
      engine.Plan(Parse<v1::TensorSpec>("rotary {head_dim: 65536 decay {}} "
                                        "table {positions {end: 4096}}"));
  const int64_t before = used_bytes;
  peak_bytes = before;
  EXPECT_THAT(engine.TryGet(plan), IsInvalidWith("the whole memory budget"));
  EXPECT_LE(peak_bytes - before, kSlack);
}

}  // namespace
}  // namespace attnbias
