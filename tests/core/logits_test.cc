// SPDX-License-Identifier: Apache-2.0
// Positional logits against the definition: a vector gathered for every pair of
// query and key, and a sum in long double. Whatever memory held before must not
// show, so all of it holds NaN.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/kernel/cuda/accelerator.h"
#include "core/kernel/kernel_set.h"
#include "core/logits/error_bound.h"
#include "core/logits/positional_logits.h"
#include "core/logits/spec/decomposed_relative_positions.h"
#include "core/logits/spec/sequence_terms.h"
#include "core/tensor/element.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/logits_requests.h"
#include "tests/testing/await.h"
#include "tests/testing/cpu_device.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/threads.h"

namespace attnbias::logits_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr Direction kDirections[] = {Direction::kLeftToRight,
                                     Direction::kRightToLeft,
                                     Direction::kBidirectional};

absl::StatusOr<BudgetedBuffer> AllocatePoisoned(int64_t bytes) {
  BudgetedBuffer buffer;
  buffer.bytes = AlignedBuffer(bytes);
  std::memset(buffer.bytes.data(), 0xff, bytes);
  return buffer;
}

// Numbers as they are in `type`, exactly.
// A sum of products as a real number, and with every factor made positive.
struct Sum {
  long double value = 0;
  long double magnitude = 0;

  void Add(long double a, long double b) { Add(a, {b, std::fabs(b)}); }
  void Add(long double a, const Sum& b) {
    value += a * b.value;
    magnitude += std::fabs(a) * b.magnitude;
  }
};

// Column `column` of a concatenated sinusoid of base 10000.
long double Sinusoid(int64_t position, int64_t column, int64_t dim) {
  const int64_t sines = (dim + 1) / 2;
  const bool cosine = column >= sines;
  const int64_t i = cosine ? column - sines : column;
  const long double angle =
      position * std::pow(10000.0L, -2.0L * static_cast<long double>(i) / dim);
  return cosine ? std::cos(angle) : std::sin(angle);
}

Sum TableVector(const RelativeTableSpec& term, const LogitsSpec& spec,
                int64_t head, int64_t relative, int64_t k) {
  const int64_t row =
      term.sign == RelativeSign::kKeyMinusQuery
          ? std::clamp(relative, -*term.left, *term.right) + *term.left
          : std::clamp(-relative, -*term.right, *term.left) + *term.right;
  const Table& table = *term.table;
  const int64_t lane = table.shape().size() == 3 ? head : 0;
  const int64_t rows = *term.left + *term.right + 1;
  const long double value = table.At((lane * rows + row) * spec.head_dim + k);
  return {value, std::fabs(value)};
}

// Number k of a row's vector in `table`, stretched to as many rows as two sides
// make.
long double Stretched(const Table& table, int64_t row, int64_t length,
                      int64_t k) {
  const long double at =
      (row + 0.5L) * static_cast<long double>(table.rows()) / length - 0.5L;
  const auto last = static_cast<long double>(table.rows() - 1);
  const long double place = std::min(std::max(at, 0.0L), last);
  const auto below = static_cast<int64_t>(std::floor(place));
  const int64_t above = std::min(below + 1, table.rows() - 1);
  const long double part = place - std::floor(place);
  return (1 - part) * table.At(below, k) + part * table.At(above, k);
}

// What the places of a query and a key on one axis have. The sides are those
// where exact numbers and float32 lead to one row.
long double OnAxis(const Table& table, int64_t query, int64_t key,
                   int64_t queries, int64_t keys, int64_t k) {
  const int64_t longer = std::max(queries, keys);
  const int64_t row =
      (query * longer * keys + (keys - 1 - key) * longer * queries) /
      (queries * keys);
  return Stretched(table, row, 2 * longer - 1, k);
}

Sum GridVector(const DecomposedRelativePositionsSpec& term, int64_t i,
               int64_t j, int64_t k) {
  Sum sum;
  sum.Add(1, OnAxis(*term.rel_pos_h, i / term.query_width, j / term.key_width,
                    term.query_height, term.key_height, k));
  sum.Add(1, OnAxis(*term.rel_pos_w, i % term.query_width, j % term.key_width,
                    term.query_width, term.key_width, k));
  return sum;
}

// Number k of the vector that head `head` has for key j, which lies `relative`
// after the query.
Sum VectorOf(const LogitsSpec& spec, int64_t head, int64_t relative, int64_t j,
             int64_t k) {
  if (const auto* term = spec.term.As<ShawKeysSpec>()) {
    return TableVector(*term, spec, head, relative, k);
  }
  if (const auto* term = spec.term.As<ShawValuesSpec>()) {
    return TableVector(*term, spec, head, relative, k);
  }
  if (const auto* term = spec.term.As<DecomposedRelativePositionsSpec>()) {
    return GridVector(*term, j - relative, j, k);
  }
  std::function<long double(int64_t)> source;
  const std::optional<Table>* projection = nullptr;
  int64_t width = 0;
  if (const auto* term = spec.term.As<SinusoidalDistancesSpec>()) {
    int64_t distance = -relative;
    if (term->clamp_len.has_value()) {
      distance =
          std::min(std::max(distance, -*term->clamp_len), *term->clamp_len);
    }
    if (term->symmetric) distance = std::abs(distance);
    width = term->sinusoidal.dim;
    source = [=](int64_t m) { return Sinusoid(distance, m, width); };
    projection = &term->projection;
  } else {
    const auto& absolute = *spec.term.As<AbsoluteKeysSpec>();
    const Table& table = *absolute.positions;
    width = table.shape().back();
    const int64_t lane = table.shape().size() == 3 ? head : 0;
    const int64_t rows = table.shape()[table.shape().size() - 2];
    source = [=, &table](int64_t m) -> long double {
      return table.At((lane * rows + j) * width + m);
    };
    projection = &absolute.projection;
  }
  Sum sum;
  if (!projection->has_value()) {
    sum.Add(1, source(k));
    return sum;
  }
  for (int64_t m = 0; m < width; ++m) {
    sum.Add((*projection)->At((head * spec.head_dim + k) * width + m),
            source(m));
  }
  return sum;
}

bool IsVisible(const LogitsSpec& spec, int64_t offset, int64_t i, int64_t j) {
  switch (*spec.direction) {
    case Direction::kLeftToRight:
      return j <= i + offset;
    case Direction::kRightToLeft:
      return j >= i + offset;
    default:
      return true;
  }
}

class NoObserver final : public AcceleratorObserver {
 public:
  void OnMade(int64_t /*bytes*/) override {}
  void OnFallback(const absl::Status& why, bool /*for_good*/) override {
    ADD_FAILURE() << why;
  }
};

class LogitsTest : public ::testing::Test {
 protected:
  LogitsTest() : accelerated_(*SupportedKernelSets().front()) {
    accelerated_.accelerator = &accelerator_;
  }

  LogitsResources Resources() {
    return {threads_, *kernels_, &AllocatePoisoned,
            [](int64_t) { return ByteBudget::Reservation(); }};
  }

  static absl::StatusOr<PositionalLogitsPtr> Create(
      const LogitsPlanPtr& plan, const LogitsResources& resources,
      const CallerPtr& caller = std::make_shared<Caller>()) {
    return Await<absl::StatusOr<PositionalLogitsPtr>>([&](auto done) {
      PositionalLogits::Create(plan, resources, caller, std::move(done));
    });
  }

  PositionalLogitsPtr Make(const LogitsSpec& spec) {
    absl::StatusOr<LogitsPlanPtr> plan = LogitsPlan::Make(spec, {});
    EXPECT_THAT(plan, IsOk());
    if (!plan.ok()) return nullptr;
    auto logits = Create(*plan, Resources());
    EXPECT_THAT(logits, IsOk());
    return *std::move(logits);
  }

  // The answer to `input`, [num_heads, rows, input_width], for rows from
  // `first_row` on, computed in parts of which none is like another.
  static absl::StatusOr<std::vector<double>> Compute(
      const PositionalLogits& logits, const std::vector<double>& input,
      int64_t first_row, int64_t num_rows) {
    const LogitsPlan& plan = logits.plan();
    const LogitsSpec& spec = plan.spec();
    const std::string bytes = ToBytes(spec.data_type, input);
    const absl::Status fits =
        plan.CheckRows(first_row, num_rows, static_cast<int64_t>(bytes.size()));
    if (!fits.ok()) return fits;
    const RowBlock block = {first_row, num_rows,
                            reinterpret_cast<const std::byte*>(bytes.data())};
    const int64_t lines = spec.num_heads * num_rows;
    std::vector<double> result;
    for (int64_t begin = 0, size = 1; begin < lines; size += 3) {
      const Range part = {begin, std::min(begin + size, lines)};
      const int64_t part_bytes = part.size() * plan.output_row_bytes();
      BudgetedBuffer out = *AllocatePoisoned(part_bytes);
      const auto done = Await<absl::Status>([&](auto done) {
        logits.Compute(block, part, out.bytes.data(),
                       std::make_shared<Caller>(), std::move(done));
      });
      if (!done.ok()) return done;
      const int64_t element = SizeOf(spec.output_data_type);
      for (int64_t at = 0; at < part_bytes; at += element) {
        result.push_back(
            ReadElement(spec.output_data_type, out.bytes.data() + at));
      }
      begin = part.end;
    }
    return result;
  }

  // Every element is within the promised bound of the definition, or the fill,
  // with an accelerator and without.
  void ExpectTheDefinition(const LogitsSpec& spec, int seed = 1) {
    kernels_ = &accelerated_;
    ExpectTheDefinitionOfKernels(spec, seed);
    kernels_ = SupportedKernelSets().front();
    ExpectTheDefinitionOfKernels(spec, seed);
  }

  void ExpectTheDefinitionOfKernels(const LogitsSpec& spec, int seed) {
    const auto logits = Make(spec);
    ASSERT_NE(logits, nullptr);
    vectors_.clear();
    const LogitsPlan& plan = logits->plan();
    const bool values = spec.term.As<ShawValuesSpec>() != nullptr;
    const int64_t width = spec.bias_alone ? 0
                          : values        ? spec.key_length
                                          : spec.head_dim;
    const std::vector<double> input = Random(
        spec.data_type, spec.num_heads * spec.query_length * width, seed + 100);
    const auto got = Compute(*logits, input, 0, spec.query_length);
    ASSERT_THAT(got, IsOk());
    ASSERT_EQ(got->size(), spec.num_heads * spec.query_length *
                               (values ? spec.head_dim : spec.key_length));
    size_t at = 0;
    for (int64_t h = 0; h < spec.num_heads; ++h) {
      for (int64_t i = 0; i < spec.query_length; ++i) {
        const double* row = input.data() + (h * spec.query_length + i) * width;
        const int64_t count = values ? spec.head_dim : spec.key_length;
        for (int64_t n = 0; n < count; ++n, ++at) {
          const std::string where = absl::StrCat("[", h, ", ", i, ", ", n, "]");
          if (values) {
            ExpectNear(plan, WeighedSum(plan, h, i, n, row), (*got)[at], where);
          } else if (!IsVisible(spec, plan.query_offset(), i, n)) {
            ASSERT_EQ((*got)[at], -kInfinity) << where;
          } else {
            ExpectNear(plan, Product(plan, h, i, n, row), (*got)[at], where);
          }
        }
      }
    }
  }

  // VectorOf, each computed once.
  const Sum& Vector(const LogitsPlan& plan, int64_t h, int64_t i, int64_t j,
                    int64_t k) {
    const LogitsSpec& spec = plan.spec();
    const bool by_pair =
        spec.term.As<DecomposedRelativePositionsSpec>() != nullptr;
    const bool by_key = spec.term.As<AbsoluteKeysSpec>() != nullptr;
    const int64_t place = by_pair  ? i * spec.key_length + j
                          : by_key ? j
                                   : j - i;
    const auto [known, is_new] = vectors_.try_emplace({h, place, k});
    if (is_new) {
      known->second = VectorOf(spec, h, j - i - plan.query_offset(), j, k);
    }
    return known->second;
  }

  Sum Product(const LogitsPlan& plan, int64_t h, int64_t i, int64_t j,
              const double* query) {
    const LogitsSpec& spec = plan.spec();
    Sum sum;
    for (int64_t k = 0; k < spec.head_dim; ++k) {
      long double factor = spec.bias_alone ? 0 : query[k];
      if (spec.query_bias.has_value()) {
        factor += spec.query_bias->At(h, k);
      }
      sum.Add(factor, Vector(plan, h, i, j, k));
    }
    return sum;
  }

  Sum WeighedSum(const LogitsPlan& plan, int64_t h, int64_t i, int64_t k,
                 const double* weights) {
    const LogitsSpec& spec = plan.spec();
    Sum sum;
    for (int64_t j = 0; j < spec.key_length; ++j) {
      if (!IsVisible(spec, plan.query_offset(), i, j)) continue;
      sum.Add(weights[j], Vector(plan, h, i, j, k));
    }
    return sum;
  }

  static void ExpectNear(const LogitsPlan& plan, const Sum& exact, double got,
                         const std::string& where) {
    const LogitsSpec& spec = plan.spec();
    const auto scale = static_cast<long double>(spec.scale);
    const auto bound = static_cast<long double>(LogitsErrorBound(
        plan.work_type(), plan.roundings(),
        static_cast<double>(exact.magnitude * std::fabs(scale))));
    const long double value = exact.value * scale;
    // Half an ulp of the largest number that may have been rounded.
    const int bits = spec.output_data_type == DataType::kF64   ? 53
                     : spec.output_data_type == DataType::kF32 ? 24
                     : spec.output_data_type == DataType::kF16 ? 11
                                                               : 8;
    const long double rounding =
        std::ldexp(std::fabs(value) + bound, -bits) + 0x1p-25L;
    const bool rounds =
        plan.work_type() != spec.output_data_type || spec.scale != 1;
    ASSERT_LE(std::fabs(got - value), bound + (rounds ? rounding : 0)) << where;
  }

  Threads threads_{2};
  CpuDeviceLog device_log_;
  NoObserver observer_;
  Accelerator accelerator_{std::make_unique<CpuDevice>(&device_log_),
                           AcceleratorOptions(), &observer_};
  KernelSet accelerated_;
  const KernelSet* kernels_ = SupportedKernelSets().front();
  std::map<std::array<int64_t, 3>, Sum> vectors_;
};

struct Extent {
  int64_t queries;
  int64_t keys;
  std::optional<int64_t> offset;
};
const Extent kExtents[] = {
    {7, 7, {}}, {3, 5, {}}, {3, 5, 0},     {5, 3, {}},   {5, 3, 0},
    {1, 9, {}}, {1, 9, 0},  {1, 1, {}},    {9, 1, {}},   {6, 8, -4},
    {6, 8, 20}, {6, 8, 3},  {140, 150, 5}, {300, 40, 9}, {2, 400, {}},
};

void ForEachExtent(const std::function<void(LogitsSpec)>& body) {
  for (const Extent& extent : kExtents) {
    for (Direction direction : kDirections) {
      LogitsSpec spec = Base(extent.queries, extent.keys, extent.offset);
      spec.direction = direction;
      SCOPED_TRACE(absl::StrCat(extent.queries, " queries, ", extent.keys,
                                " keys, direction ",
                                static_cast<int>(direction)));
      body(std::move(spec));
    }
  }
}

TEST_F(LogitsTest, ShawKeys) {
  for (auto [left, right] : {std::pair(2, 2), {3, 1}, {0, 4}, {500, 0}}) {
    ForEachExtent([&](LogitsSpec spec) {
      spec.term = ShawKeys(left, right, spec.head_dim);
      ExpectTheDefinition(spec);
    });
  }
}

TEST_F(LogitsTest, AnAcceleratorMultiplies) {
  LogitsSpec spec = Base(30, 40);
  spec.term = ShawKeys(2, 2, spec.head_dim);
  ExpectTheDefinition(spec);
  EXPECT_GT(device_log_.launches, 0);
}

TEST_F(LogitsTest, ShawKeysOfEveryHeadItsOwn) {
  ForEachExtent([&](LogitsSpec spec) {
    spec.term = Shaw<ShawKeysSpec>(
        3, 1,
        RandomTable(DataType::kF32, {spec.num_heads, 5, spec.head_dim}, 2));
    ExpectTheDefinition(spec);
  });
}

TEST_F(LogitsTest, ShawValues) {
  for (auto [left, right] : {std::pair(2, 2), {3, 1}, {0, 0}, {500, 500}}) {
    ForEachExtent([&](LogitsSpec spec) {
      spec.term = Shaw<ShawValuesSpec>(
          left, right,
          RandomTable(DataType::kF32, {left + right + 1, spec.head_dim}, 3));
      ExpectTheDefinition(spec);
    });
  }
}

TEST_F(LogitsTest, ShawTablesThatCountTheOtherWay) {
  ForEachExtent([&](LogitsSpec spec) {
    const auto ask = [&](auto term) {
      term.sign = RelativeSign::kQueryMinusKey;
      spec.term = term;
      ExpectTheDefinition(spec);
    };
    const Table shared = RandomTable(DataType::kF32, {5, spec.head_dim}, 4);
    ask(Shaw<ShawKeysSpec>(3, 1, shared));
    ask(Shaw<ShawValuesSpec>(3, 1, shared));
    ask(Shaw<ShawKeysSpec>(
        1, 3,
        RandomTable(DataType::kF32, {spec.num_heads, 5, spec.head_dim}, 5)));
  });
}

TEST_F(LogitsTest, TransformerXl) {
  for (bool symmetric : {false, true}) {
    for (std::optional<int64_t> clamp : {std::optional<int64_t>(), {4}}) {
      ForEachExtent([&](LogitsSpec spec) {
        SinusoidalDistancesSpec term =
            TransformerXl(6, spec.num_heads * spec.head_dim);
        term.symmetric = symmetric;
        term.clamp_len = clamp;
        spec.term = term;
        spec.query_bias =
            RandomTable(DataType::kF32, {spec.num_heads, spec.head_dim}, 9);
        ExpectTheDefinition(spec);
      });
    }
  }
}

TEST_F(LogitsTest, TransformerXlBiasAlone) {
  LogitsSpec spec = Base(6, 9);
  spec.term = TransformerXl(6, spec.num_heads * spec.head_dim);
  spec.query_bias =
      RandomTable(DataType::kF32, {spec.num_heads, spec.head_dim}, 9);
  spec.bias_alone = true;
  ExpectTheDefinition(spec);
}

TEST_F(LogitsTest, SinusoidsUnprojected) {
  LogitsSpec spec = Base(30, 40);
  SinusoidalDistancesSpec term;
  term.sinusoidal.dim = spec.head_dim;
  term.sinusoidal.layout = SinusoidalLayout::kConcatenated;
  spec.term = term;
  ExpectTheDefinition(spec);
}

TEST_F(LogitsTest, AbsoluteKeys) {
  ForEachExtent([&](LogitsSpec spec) {
    const int64_t width = spec.num_heads * spec.head_dim;
    AbsoluteKeysSpec term;
    term.positions = RandomTable(DataType::kF32, {spec.key_length + 3, 4}, 4);
    term.projection = RandomTable(DataType::kF32, {width, 4}, 5);
    spec.term = term;
    ExpectTheDefinition(spec);
    term.projection.reset();
    term.positions = RandomTable(DataType::kF32, {410, spec.head_dim}, 4);
    spec.term = term;
    ExpectTheDefinition(spec);
    term.positions =
        RandomTable(DataType::kF32, {spec.num_heads, 402, spec.head_dim}, 4);
    spec.term = term;
    ExpectTheDefinition(spec);
  });
}

TEST_F(LogitsTest, DecomposedRelativePositions) {
  struct Case {
    std::array<int64_t, 2> queries;
    std::array<int64_t, 2> keys;
    std::array<int64_t, 2> rows;
  };
  const Case cases[] = {
      {{14, 14}, {14, 14}, {27, 27}},  // a window of SAM
      {{9, 16}, {9, 16}, {27, 27}},    // the same tables, another grid
      {{4, 5}, {4, 5}, {1, 40}},       // one row for all; a longer table
      {{8, 12}, {4, 3}, {15, 23}},     // pooled keys: steps of -2 and -4
      {{9, 7}, {6, 5}, {17, 13}},      // no multiples: steps that change
      {{3, 4}, {6, 4}, {11, 7}},       // pooled queries
      {{1, 1}, {1, 1}, {1, 1}},       {{1, 6}, {7, 1}, {13, 11}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(absl::StrCat(each.queries[0], " x ", each.queries[1], " by ",
                              each.keys[0], " x ", each.keys[1]));
    LogitsSpec spec = Grids(each.queries, each.keys, each.rows);
    ExpectTheDefinition(spec);
    spec.query_bias =
        RandomTable(DataType::kF32, {spec.num_heads, spec.head_dim}, 9);
    spec.scale = -0.3;
    ExpectTheDefinition(spec);
  }
}

TEST_F(LogitsTest, SumsOfProductsCountTheirRoundings) {
  const auto roundings = [](const LogitsSpec& spec) {
    return (*LogitsPlan::Make(spec, {}))->roundings();
  };
  EXPECT_EQ(roundings(Grids({2, 3}, {2, 3}, {3, 5})), 5 + 1);
  EXPECT_EQ(roundings(Grids({2, 3}, {2, 3}, {3, 4})), 5 + 1 + 2);
  EXPECT_EQ(roundings(Grids({2, 3}, {2, 3}, {3, 4}, DataType::kF64)),
            5 + 1 + 1);
}

// torch's float32 leads to other rows than real numbers do, which have 6, 5, 4,
// 2, 1, 0 for the first query; all of them are numpy's for the formula.
TEST_F(LogitsTest, PlacesInGridsAreThoseOfFloat32) {
  LogitsSpec spec = Base(8, 6, 0);
  spec.num_heads = 1;
  spec.head_dim = 1;
  std::vector<double> indices(15);
  for (size_t row = 0; row < indices.size(); ++row) {
    indices[row] = static_cast<double>(row);
  }
  spec.term = DecomposedRelativePositionsSpec{
      .rel_pos_h = TableOf(DataType::kF32, {15, 1}, indices),
      .rel_pos_w = TableOf(DataType::kF32, {1, 1}, {0}),
      .query_height = 8,
      .query_width = 1,
      .key_height = 6,
      .key_width = 1};
  EXPECT_THAT(*Compute(*Make(spec), std::vector<double>(8, 1), 0, 8),
              ElementsAre(6, 5, 3, 2, 1, 0, 7, 6, 5, 3, 2, 0,     //
                          8, 7, 6, 4, 3, 1, 9, 8, 7, 5, 4, 2,     //
                          10, 9, 8, 6, 5, 3, 11, 10, 9, 7, 6, 4,  //
                          12, 11, 10, 8, 7, 5, 13, 12, 11, 9, 8, 6));
}

TEST_F(LogitsTest, EveryTypeWithinItsBound) {
  constexpr DataType kTypes[] = {DataType::kF64, DataType::kF32, DataType::kF16,
                                 DataType::kBF16};
  for (DataType in : kTypes) {
    for (DataType out : kTypes) {
      for (double scale : {1.0, -0.3}) {
        SCOPED_TRACE(absl::StrCat(std::string(NameOf(in)), " to ",
                                  std::string(NameOf(out))));
        LogitsSpec spec = Base(11, 17);
        spec.head_dim = 64;
        spec.data_type = in;
        spec.output_data_type = out;
        spec.scale = scale;
        spec.term = ShawKeys(4, 3, spec.head_dim, DataType::kBF16);
        ExpectTheDefinition(spec);
        spec.term = Shaw<ShawValuesSpec>(
            4, 3, RandomTable(DataType::kF16, {8, spec.head_dim}, 3));
        ExpectTheDefinition(spec);
        spec.term = TransformerXl(24, spec.num_heads * spec.head_dim);
        spec.query_bias =
            RandomTable(DataType::kF32, {spec.num_heads, spec.head_dim}, 9);
        ExpectTheDefinition(spec);
      }
    }
  }
}

TEST_F(LogitsTest, SumsOfProductsInEveryTypeWithinTheirBound) {
  constexpr DataType kTypes[] = {DataType::kF64, DataType::kF32, DataType::kF16,
                                 DataType::kBF16};
  for (DataType in : kTypes) {
    for (DataType out : kTypes) {
      SCOPED_TRACE(absl::StrCat(std::string(NameOf(in)), " to ",
                                std::string(NameOf(out))));
      LogitsSpec spec = Grids({3, 4}, {3, 4}, {8, 7}, DataType::kBF16);
      spec.data_type = in;
      spec.output_data_type = out;
      ExpectTheDefinition(spec);
    }
  }
}

TEST_F(LogitsTest, LargeTilesOnAllThreads) {
  LogitsSpec spec = Base(700, 700);
  spec.num_heads = 2;
  spec.head_dim = 8;
  spec.direction = Direction::kLeftToRight;
  spec.term = TransformerXl(10, spec.num_heads * spec.head_dim);
  ExpectTheDefinition(spec);
}

// One head, vectors (10, distance) and queries (i, 1) give 10 i + distance: the
// shift's own picture (encodings.md, cases 33 to 35).

class ShiftTest : public LogitsTest {
 protected:
  std::vector<double> Shifted(LogitsSpec spec, double per_row) {
    spec.num_heads = 1;
    spec.head_dim = 2;
    spec.fill = -100.0;
    std::vector<double> vectors;
    for (int r = -10; r <= 10; ++r) {
      vectors.insert(vectors.end(), {per_row, -static_cast<double>(r)});
    }
    spec.term =
        Shaw<ShawKeysSpec>(10, 10, TableOf(DataType::kF32, {21, 2}, vectors));
    std::vector<double> queries;
    for (int64_t i = 0; i < spec.query_length; ++i) {
      queries.insert(queries.end(), {static_cast<double>(i), 1});
    }
    return *Compute(*Make(spec), queries, 0, spec.query_length);
  }
};

TEST_F(ShiftTest, TransformerXlLeavesNoGarbage) {
  LogitsSpec spec = Base(3, 5);
  spec.direction = Direction::kLeftToRight;
  EXPECT_THAT(Shifted(spec, 10), ElementsAre(2, 1, 0, -100, -100,   //
                                             13, 12, 11, 10, -100,  //
                                             24, 23, 22, 21, 20));
  spec.direction = Direction::kRightToLeft;
  EXPECT_THAT(Shifted(spec, 10), ElementsAre(-100, -100, 0, -1, -2,    //
                                             -100, -100, -100, 10, 9,  //
                                             -100, -100, -100, -100, 20));
}

TEST_F(ShiftTest, XlnetAndConformerAreSigned) {
  EXPECT_THAT(Shifted(Base(3, 5), 0), ElementsAre(2, 1, 0, -1, -2,  //
                                                  3, 2, 1, 0, -1,   //
                                                  4, 3, 2, 1, 0));
  EXPECT_THAT(Shifted(Base(4, 4), 0),
              ElementsAre(0, -1, -2, -3, 1, 0, -1, -2,  //
                          2, 1, 0, -1, 3, 2, 1, 0));
}

// Query rows that are all the same show which vector each key uses
// (encodings.md, cases 29 and 30).
TEST_F(LogitsTest, ClippedIndices) {
  const auto indices = [this](
                           LogitsSpec spec, int64_t left, int64_t right,
                           RelativeSign sign = RelativeSign::kKeyMinusQuery) {
    spec.num_heads = 1;
    spec.head_dim = 1;
    std::vector<double> vectors;
    for (int64_t r = 0; r <= left + right; ++r) {
      vectors.push_back(static_cast<double>(r));
    }
    auto term = Shaw<ShawKeysSpec>(
        left, right, TableOf(DataType::kF32, {left + right + 1, 1}, vectors));
    term.sign = sign;
    spec.term = term;
    return *Compute(*Make(spec), std::vector<double>(spec.query_length, 1), 0,
                    spec.query_length);
  };
  EXPECT_THAT(indices(Base(3, 5), 2, 2),
              ElementsAre(0, 1, 2, 3, 4, 0, 0, 1, 2, 3, 0, 0, 0, 1, 2));
  EXPECT_THAT(indices(Base(1, 5), 2, 2), ElementsAre(0, 0, 0, 1, 2));
  const std::vector<double> asymmetric = indices(Base(6, 6), 3, 1);
  EXPECT_THAT(std::vector<double>(asymmetric.begin(), asymmetric.begin() + 6),
              ElementsAre(3, 4, 4, 4, 4, 4));
  EXPECT_THAT(std::vector<double>(asymmetric.end() - 6, asymmetric.end()),
              ElementsAre(0, 0, 0, 1, 2, 3));
  EXPECT_THAT(indices(Base(2, 6, 3), 3, 1, RelativeSign::kQueryMinusKey),
              ElementsAre(4, 3, 2, 1, 0, 0, 4, 4, 3, 2, 1, 0));
}

TEST_F(LogitsTest, SymmetricRowIsAPalindrome) {
  LogitsSpec spec = Base(3, 5);
  SinusoidalDistancesSpec term =
      TransformerXl(6, spec.num_heads * spec.head_dim);
  term.symmetric = true;
  spec.term = term;
  const std::vector<double> queries = Random(DataType::kF32, 3 * 3 * 5, 1);
  const std::vector<double> rows = *Compute(*Make(spec), queries, 0, 3);
  EXPECT_EQ(rows[0], rows[4]);
  EXPECT_EQ(rows[1], rows[3]);
}

TEST_F(LogitsTest, RowsComeInAnyOrderAndNumber) {
  LogitsSpec spec = Base(40, 60);
  spec.direction = Direction::kLeftToRight;
  spec.term = TransformerXl(6, spec.num_heads * spec.head_dim, DataType::kF64);
  const auto logits = Make(spec);
  const std::vector<double> queries = Random(DataType::kF32, 3 * 40 * 5, 1);
  const std::vector<double> whole = *Compute(*logits, queries, 0, 40);
  for (int64_t row : {39, 0, 17}) {
    std::vector<double> one;
    for (int64_t h = 0; h < 3; ++h) {
      const auto begin = queries.begin() + (h * 40 + row) * 5;
      one.insert(one.end(), begin, begin + 5);
    }
    const std::vector<double> got = *Compute(*logits, one, row, 1);
    for (int64_t h = 0; h < 3; ++h) {
      for (int64_t j = 0; j < 60; ++j) {
        // The order of a BLAS's additions depends on the shape.
        const double want = whole[(h * 40 + row) * 60 + j];
        if (j > row + 20) {
          EXPECT_EQ(got[h * 60 + j], -kInfinity);
        } else {
          EXPECT_NEAR(got[h * 60 + j], want, 1e-5);
        }
      }
    }
  }
}

TEST_F(LogitsTest, MaskedWeightsAreNotRead) {
  LogitsSpec spec = Base(1, 4, 1);
  spec.num_heads = 1;
  spec.head_dim = 1;
  spec.direction = Direction::kLeftToRight;
  spec.term = Shaw<ShawValuesSpec>(0, 0, TableOf(DataType::kF32, {1, 1}, {2}));
  EXPECT_THAT(*Compute(*Make(spec), {1, 10, kNaN, kInfinity}, 0, 1),
              ElementsAre(22));
}

TEST_F(LogitsTest, FillsAreThoseOfTheOutputType) {
  LogitsSpec spec = Base(1, 2, 0);
  spec.num_heads = 1;
  spec.direction = Direction::kLeftToRight;
  spec.term = ShawKeys(1, 1, spec.head_dim);
  spec.output_data_type = DataType::kF16;
  const std::vector<double> query(5, 0);
  EXPECT_THAT(*Compute(*Make(spec), query, 0, 1), ElementsAre(0, -kInfinity));
  spec.fill = 0.0;
  EXPECT_THAT(*Compute(*Make(spec), query, 0, 1), ElementsAre(0, 0));
  spec.fill = Lowest();
  EXPECT_THAT(*Compute(*Make(spec), query, 0, 1), ElementsAre(0, -65504));
  spec.fill = 1e6;
  EXPECT_THAT(LogitsPlan::Make(spec, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("fill_value: got 1e+06")));
}

TEST_F(LogitsTest, NumbersThatAreNotFiniteAreRefused) {
  LogitsSpec spec = Base(2, 2);
  spec.term = ShawKeys(1, 1, spec.head_dim);
  const auto logits = Make(spec);
  std::vector<double> queries(2 * 3 * 5, 1);
  queries[1 * 10 + 5 + 2] = kNaN;
  EXPECT_THAT(Compute(*logits, queries, 0, 2),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith("data: got "),
                             HasSubstr("at [1, 1, 2], want finite"))));
  queries[17] = 3e38;
  queries[18] = -3e38;
  spec.term = Shaw<ShawKeysSpec>(
      1, 1, TableOf(DataType::kF32, {3, 5}, std::vector<double>(15, 10.0)));
  EXPECT_THAT(Compute(*Make(spec), queries, 0, 2),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("data: sums of products overflow F32")));
}

TEST_F(LogitsTest, CancelledBeforeItBegins) {
  LogitsSpec spec = Base(100, 100);
  spec.term = TransformerXl(6, spec.num_heads * spec.head_dim);
  const auto caller = std::make_shared<Caller>();
  caller->Cancel();
  EXPECT_THAT(Create(*LogitsPlan::Make(spec, {}), Resources(), caller),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("waits")));
}

TEST_F(LogitsTest, NoRoomForVectors) {
  LogitsSpec spec = Base(100, 100);
  spec.term = TransformerXl(6, spec.num_heads * spec.head_dim);
  LogitsResources resources = Resources();
  resources.allocate = [](int64_t) -> absl::StatusOr<BudgetedBuffer> {
    return absl::ResourceExhaustedError("full");
  };
  EXPECT_THAT(Create(*LogitsPlan::Make(spec, {}), resources),
              StatusIs(absl::StatusCode::kResourceExhausted, "full"));
}

TEST_F(LogitsTest, NoRoomForWhatMakesVectors) {
  LogitsSpec spec = Base(100, 100);
  spec.term = TransformerXl(6, spec.num_heads * spec.head_dim);
  LogitsResources resources = Resources();
  int64_t asked = 0;
  resources.reserve =
      [&](int64_t bytes) -> absl::StatusOr<ByteBudget::Reservation> {
    asked = bytes;
    return absl::ResourceExhaustedError("full");
  };
  EXPECT_THAT(Create(*LogitsPlan::Make(spec, {}), resources),
              StatusIs(absl::StatusCode::kResourceExhausted, "full"));
  // Rotations by 256 steps of three sizes, a kernel's least count of pairs.
  EXPECT_GE(asked, 3 * 256 * kPairMultiple * 32);
}

}  // namespace
}  // namespace attnbias::logits_test
