// SPDX-License-Identifier: Apache-2.0
// The bits of results depend neither on how a range is split nor on the kernels.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/encoding/mpfr_oracle.h"
#include "tests/unit/support/filled.h"

namespace attnbias::bits_test {
namespace {

// Coordinates of an encoding, relative to `query` for pairs.
struct Case {
  v1::TensorSpec spec;
  Range span;
  int64_t query = 0;
};

constexpr char kSinesCosines[] = "columns: COLUMNS_SINES_COSINES ";
constexpr char kTensor2Tensor[] =
    "columns: COLUMNS_SINES_COSINES odd: ODD_COLUMN_ZERO "
    "ladder {timescales {}}";

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& text, Range span, int64_t query = 0) -> v1::TensorSpec& {
    cases.push_back({Parse<v1::TensorSpec>(text), span, query});
    return cases.back().spec;
  };
  add("alibi {num_heads: 12}", {-100, 100});
  add("sandwich {num_heads: 3}", {-700, 700});
  for (const std::string kernel : {"LOG", "POWER"}) {
    add("kerple {p: [0.3, 1.7, 0.9] a: [1.1, 0.2, 0.6] "
        "kernel: KERPLE_KERNEL_" +
            kernel + "}",
        {-300, 300});
  }
  *add("t5 {bidirectional: true}", {-500, 500}).mutable_t5()->mutable_table() =
      RandomRef({32, 4}, 1);
  v1::Fire& fire = *add("fire {threshold: 64.5}", {0, 300}, 150).mutable_fire();
  *fire.mutable_hidden_weight() = RandomRef({32, 1}, 1);
  *fire.mutable_hidden_bias() = RandomRef({32}, 2);
  *fire.mutable_output_weight() = RandomRef({3, 32}, 3);
  v1::MlpBias& mlp = *add("mlp_bias {activation: ACTIVATION_SILU layers {} layers {} "
                          "coordinates: COORDINATES_SIGNED_LOG}",
                          {-200, 200})
                          .mutable_mlp_bias();
  *mlp.mutable_layers(0)->mutable_weight() = RandomRef({19, 1}, 1);
  *mlp.mutable_layers(0)->mutable_norm_weight() = RandomRef({19}, 2);
  *mlp.mutable_layers(0)->mutable_norm_bias() = RandomRef({19}, 3);
  *mlp.mutable_layers(1)->mutable_weight() = RandomRef({5, 19}, 4);
  for (const std::string& fields :
       {std::string("dim: 1"), std::string("dim: 6"), std::string("dim: 64"),
        std::string("dim: 33 ") + kSinesCosines, std::string("dim: 34 ") + kSinesCosines,
        std::string("dim: 96 ladder {base: 1e18} ") + kSinesCosines,
        std::string("dim: 35 ") + kTensor2Tensor, std::string("dim: 128 ") + kTensor2Tensor}) {
    add("sinusoidal {" + fields + "}", {-700, 1100});
  }
  for (const std::string fields : {"head_dim: 34", "head_dim: 10 angle: ANGLE_PRECISION_FLOAT32",
                                   "head_dim: 128 partial_rotary_factor: 0.25 proportional {}",
                                   "head_dim: 64 rope_theta: 150000 yarn {factor: 32 "
                                   "original_max_position_embeddings: 4096 truncate: false}",
                                   "head_dim: 20 decay {center: 250}"}) {
    add("rotary {" + fields + "}", {-300, 1200});
  }
  for (const std::string fields : {"left: 20 right: 10", "causal: true", "symmetric: true"}) {
    add("relative_sinusoidal {dim: 12 " + fields + "}", {-40, 40});
  }
  return cases;
}

class Bits : public ::testing::TestWithParam<Case> {};

TEST_P(Bits, DoNotDependOnRangesOrKernels) {
  const auto& [spec, span, query] = GetParam();
  SCOPED_TRACE(spec.ShortDebugString());
  for (const DataType type : kFloatTypes) {
    const FilledNumbers whole = Filled(spec, span, type, "", query, span.size());
    for (const KernelSet* kernels : SupportedKernelSets()) {
      for (const int64_t most : {7, 377}) {
        const FilledNumbers cut = Filled(spec, span, type, "", query, most, *kernels);
        EXPECT_TRUE(std::ranges::equal(cut.numbers, whole.numbers, Same))
            << kernels->name << " " << NameOf(type) << " in " << most;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Encodings, Bits, ::testing::ValuesIn(Cases()));

}  // namespace
}  // namespace attnbias::bits_test
