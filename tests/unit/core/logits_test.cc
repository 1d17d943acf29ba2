// SPDX-License-Identifier: Apache-2.0
// Compares positional logits with the definition: a vector gathered for every query-key pair, and a
// sum in long double. Uninitialized memory must not leak into results, so all of it holds NaN.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/kernel/cuda/accelerator.h"
#include "core/kernel/kernel_set.h"
#include "core/logits/positional_logits.h"
#include "core/tensor/data_type.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/core/logits_requests.h"
#include "tests/unit/support/await.h"
#include "tests/unit/support/cpu_device.h"
#include "tests/unit/support/status_matchers.h"
#include "tests/unit/support/threads.h"

namespace attnbias::logits_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr v1::Direction kDirections[] = {v1::DIRECTION_LEFT_TO_RIGHT, v1::DIRECTION_RIGHT_TO_LEFT,
                                         v1::DIRECTION_BIDIRECTIONAL};

// Returns `magnitude` times n u / (1 - n u), as defined in docs/numerics.md.
double ErrorBound(DataType work_type, int64_t roundings, double magnitude) {
  const double u = work_type == DataType::kF64 ? 0x1p-53 : 0x1p-24;
  const double nu = static_cast<double>(roundings) * u;
  return nu / (1 - nu) * magnitude;
}

absl::StatusOr<BudgetedBuffer> AllocatePoisoned(int64_t bytes) {
  BudgetedBuffer buffer;
  buffer.bytes = AlignedBuffer(bytes);
  std::memset(buffer.bytes.data(), 0xff, bytes);
  return buffer;
}

// A sum of products as a real number, and the same sum with every factor replaced by its absolute
// value.
struct Sum {
  long double value = 0;
  long double magnitude = 0;

  void Add(long double a, long double b) { Add(a, Sum{b, std::fabs(b)}); }
  void Add(long double a, const Sum& b) {
    value += a * b.value;
    magnitude += std::fabs(a) * b.magnitude;
  }
};

// Returns column `column` of a sinusoid with base 10000 and sines first.
long double Sinusoid(int64_t position, int64_t column, int64_t dim) {
  const int64_t sines = (dim + 1) / 2;
  const bool cosine = column >= sines;
  const int64_t i = cosine ? column - sines : column;
  const long double angle =
      position * std::pow(10000.0L, -2.0L * static_cast<long double>(i) / dim);
  return cosine ? std::cos(angle) : std::sin(angle);
}

using Vector = std::vector<Sum>;

Vector TableVector(const v1::RelativeTable& term, int64_t head_dim, int64_t head,
                   int64_t relative) {
  const int64_t row = term.sign() == v1::RELATIVE_SIGN_KEY_MINUS_QUERY
                          ? std::clamp(relative, -term.left(), term.right()) + term.left()
                          : std::clamp(-relative, -term.right(), term.left()) + term.right();
  const Table table = TableAt(term.table());
  const int64_t lane = table.shape().size() == 3 ? head : 0;
  const int64_t rows = term.left() + term.right() + 1;
  Vector vector(head_dim);
  for (int64_t k = 0; k < head_dim; ++k) {
    vector[k].Add(1, table.At((lane * rows + row) * head_dim + k));
  }
  return vector;
}

// Returns element k of a row's vector in `table`, stretched to the number of rows that the two
// sides require.
long double Stretched(const Table& table, int64_t row, int64_t length, int64_t k) {
  const long double at = (row + 0.5L) * static_cast<long double>(table.rows()) / length - 0.5L;
  const auto last = static_cast<long double>(table.rows() - 1);
  const long double place = std::min(std::max(at, 0.0L), last);
  const auto below = static_cast<int64_t>(std::floor(place));
  const int64_t above = std::min(below + 1, table.rows() - 1);
  const long double part = place - std::floor(place);
  return (1 - part) * table.At(below, k) + part * table.At(above, k);
}

// Returns the term for a query's and a key's indices on one axis. For the sides used here, exact
// arithmetic and float32 select the same row.
long double OnAxis(const Table& table, int64_t query, int64_t key, int64_t queries, int64_t keys,
                   int64_t k) {
  const int64_t longer = std::max(queries, keys);
  const int64_t row =
      (query * longer * keys + (keys - 1 - key) * longer * queries) / (queries * keys);
  return Stretched(table, row, 2 * longer - 1, k);
}

Vector GridVector(const v1::DecomposedRelativePositions& term, int64_t head_dim, int64_t i,
                  int64_t j) {
  const Table of_rows = TableAt(term.rel_pos_h());
  const Table of_columns = TableAt(term.rel_pos_w());
  Vector vector(head_dim);
  for (int64_t k = 0; k < head_dim; ++k) {
    vector[k].Add(1, OnAxis(of_rows, i / term.query_width(), j / term.key_width(),
                            term.query_height(), term.key_height(), k));
    vector[k].Add(1, OnAxis(of_columns, i % term.query_width(), j % term.key_width(),
                            term.query_width(), term.key_width(), k));
  }
  return vector;
}

// Returns the vector of head `head` for key j, which is `relative` positions after the query.
Vector VectorOf(const v1::LogitsSpec& spec, int64_t head, int64_t relative, int64_t j) {
  const int64_t head_dim = spec.head_dim();
  if (spec.has_shaw_keys()) {
    return TableVector(spec.shaw_keys(), head_dim, head, relative);
  }
  if (spec.has_shaw_values()) {
    return TableVector(spec.shaw_values(), head_dim, head, relative);
  }
  if (spec.has_decomposed_relative_positions()) {
    return GridVector(spec.decomposed_relative_positions(), head_dim, j - relative, j);
  }
  std::vector<long double> source;
  v1::TableRef projection;
  if (spec.has_sinusoidal_distances()) {
    const v1::SinusoidalDistances& term = spec.sinusoidal_distances();
    int64_t distance = -relative;
    if (term.has_clamp_len()) {
      distance = std::clamp(distance, -term.clamp_len(), term.clamp_len());
    }
    if (term.symmetric()) distance = std::abs(distance);
    const int64_t width = term.sinusoidal().dim();
    for (int64_t m = 0; m < width; ++m) {
      source.push_back(Sinusoid(distance, m, width));
    }
    projection = term.projection();
  } else {
    const Table table = TableAt(spec.absolute_keys().positions());
    const int64_t width = table.shape().back();
    const int64_t lane = table.shape().size() == 3 ? head : 0;
    const int64_t rows = table.shape()[table.shape().size() - 2];
    for (int64_t m = 0; m < width; ++m) {
      source.push_back(table.At((lane * rows + j) * width + m));
    }
    projection = spec.absolute_keys().projection();
  }
  Vector vector(head_dim);
  if (projection.sha256().empty()) {
    for (int64_t k = 0; k < head_dim; ++k) vector[k].Add(1, source[k]);
    return vector;
  }
  const Table weights = TableAt(projection);
  const int64_t width = std::ssize(source);
  for (int64_t k = 0; k < head_dim; ++k) {
    for (int64_t m = 0; m < width; ++m) {
      vector[k].Add(weights.At((head * head_dim + k) * width + m), source[m]);
    }
  }
  return vector;
}

bool IsVisible(const v1::LogitsSpec& spec, int64_t offset, int64_t i, int64_t j) {
  switch (spec.direction()) {
    case v1::DIRECTION_LEFT_TO_RIGHT:
      return j <= i + offset;
    case v1::DIRECTION_RIGHT_TO_LEFT:
      return j >= i + offset;
    default:
      return true;
  }
}

class NoObserver final : public AcceleratorObserver {
 public:
  void OnMade(int64_t /*bytes*/) override {}
  void OnFallback(const absl::Status& why, bool /*for_good*/) override { ADD_FAILURE() << why; }
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
    return Await<absl::StatusOr<PositionalLogitsPtr>>(
        [&](auto done) { PositionalLogits::Create(plan, resources, caller, std::move(done)); });
  }

  PositionalLogitsPtr Make(const v1::LogitsSpec& spec) {
    absl::StatusOr<LogitsPlanPtr> plan = PlanOf(spec);
    EXPECT_THAT(plan, IsOk());
    if (!plan.ok()) return nullptr;
    auto logits = Create(*plan, Resources());
    EXPECT_THAT(logits, IsOk());
    return *std::move(logits);
  }

  // Returns the answer to `input` (shape [num_heads, rows, input_width]) for rows starting at
  // `first_row`, computed in parts of different sizes.
  static absl::StatusOr<std::vector<double>> Compute(const PositionalLogits& logits,
                                                     const std::vector<double>& input,
                                                     int64_t first_row, int64_t num_rows) {
    const LogitsPlan& plan = logits.plan();
    const v1::LogitsSpec& spec = plan.spec();
    const std::string bytes = ToBytes(plan.input_type(), input);
    const absl::Status fits =
        plan.CheckRows(first_row, num_rows, static_cast<int64_t>(bytes.size()));
    if (!fits.ok()) return fits;
    const RowBlock block = {first_row, num_rows, reinterpret_cast<const std::byte*>(bytes.data())};
    const int64_t lines = spec.num_heads() * num_rows;
    std::vector<double> result;
    for (int64_t begin = 0, size = 1; begin < lines; size += 3) {
      const Range part = {begin, std::min(begin + size, lines)};
      const int64_t part_bytes = part.size() * plan.output_row_bytes();
      BudgetedBuffer out = *AllocatePoisoned(part_bytes);
      const auto done = Await<absl::Status>([&](auto done) {
        logits.Compute(block, part, out.bytes.data(), std::make_shared<Caller>(), std::move(done));
      });
      if (!done.ok()) return done;
      const int64_t element = SizeOf(plan.output_type());
      for (int64_t at = 0; at < part_bytes; at += element) {
        result.push_back(ReadElement(plan.output_type(), out.bytes.data() + at));
      }
      begin = part.end;
    }
    return result;
  }

  // Checks, with and without an accelerator, that every element is within the documented bound of
  // the definition or is the fill.
  void ExpectTheDefinition(const v1::LogitsSpec& spec, int seed = 1) {
    const auto logits = Make(spec);
    ASSERT_NE(logits, nullptr);
    const LogitsPlan& plan = logits->plan();
    const bool values = spec.has_shaw_values();
    const int64_t width = spec.bias_alone() ? 0 : values ? spec.key_length() : spec.head_dim();
    const std::vector<double> input =
        Random(plan.input_type(), spec.num_heads() * spec.query_length() * width, seed + 100);
    kernels_ = &accelerated_;
    const auto accelerated = Make(spec);
    kernels_ = SupportedKernelSets().front();
    const auto got = Compute(*logits, input, 0, spec.query_length());
    const auto also = Compute(*accelerated, input, 0, spec.query_length());
    ASSERT_THAT(got, IsOk());
    ASSERT_THAT(also, IsOk());
    const int64_t count = values ? spec.head_dim() : spec.key_length();
    ASSERT_EQ(got->size(), spec.num_heads() * spec.query_length() * count);
    ASSERT_EQ(also->size(), got->size());
    vectors_.clear();
    size_t at = 0;
    for (int64_t h = 0; h < spec.num_heads(); ++h) {
      for (int64_t i = 0; i < spec.query_length(); ++i) {
        const double* row = input.data() + (h * spec.query_length() + i) * width;
        const std::vector<std::optional<Sum>> exact =
            values ? WeighedSums(plan, h, i, row) : Products(plan, h, i, row);
        for (int64_t n = 0; n < count; ++n, ++at) {
          for (const double number : {(*got)[at], (*also)[at]}) {
            ASSERT_TRUE(exact[n].has_value() ? IsNear(plan, *exact[n], number)
                                             : number == -kInfinity)
                << "[" << h << ", " << i << ", " << n << "]: got " << number;
          }
        }
      }
    }
  }

  // Returns VectorOf's result, computing each vector only once.
  const Vector& VectorAt(const LogitsPlan& plan, int64_t h, int64_t i, int64_t j) {
    const v1::LogitsSpec& spec = plan.spec();
    const bool by_pair = spec.has_decomposed_relative_positions();
    const bool by_key = spec.has_absolute_keys();
    const int64_t place = by_pair ? i * spec.key_length() + j : by_key ? j : j - i;
    const auto [known, is_new] = vectors_.try_emplace({h, place});
    if (is_new) {
      known->second = VectorOf(spec, h, j - i - plan.query_offset(), j);
    }
    return known->second;
  }

  // Returns a query's product with each key that it sees.
  std::vector<std::optional<Sum>> Products(const LogitsPlan& plan, int64_t h, int64_t i,
                                           const double* query) {
    const v1::LogitsSpec& spec = plan.spec();
    std::vector<std::optional<Sum>> sums(spec.key_length());
    for (int64_t j = 0; j < spec.key_length(); ++j) {
      if (!IsVisible(spec, plan.query_offset(), i, j)) continue;
      const Vector& vector = VectorAt(plan, h, i, j);
      Sum& sum = sums[j].emplace();
      for (int64_t k = 0; k < spec.head_dim(); ++k) {
        long double factor = spec.bias_alone() ? 0 : query[k];
        if (plan.query_bias().has_value()) {
          factor += plan.query_bias()->At(h, k);
        }
        sum.Add(factor, vector[k]);
      }
    }
    return sums;
  }

  // Returns the weighted sum of the vectors for the keys that a query sees.
  std::vector<std::optional<Sum>> WeighedSums(const LogitsPlan& plan, int64_t h, int64_t i,
                                              const double* weights) {
    const v1::LogitsSpec& spec = plan.spec();
    std::vector<std::optional<Sum>> sums(spec.head_dim(), Sum());
    for (int64_t j = 0; j < spec.key_length(); ++j) {
      if (!IsVisible(spec, plan.query_offset(), i, j)) continue;
      const Vector& vector = VectorAt(plan, h, i, j);
      for (int64_t k = 0; k < spec.head_dim(); ++k) {
        sums[k]->Add(weights[j], vector[k]);
      }
    }
    return sums;
  }

  static bool IsNear(const LogitsPlan& plan, const Sum& exact, double got) {
    const v1::LogitsSpec& spec = plan.spec();
    const auto scale = static_cast<long double>(spec.scale());
    const auto bound = static_cast<long double>(
        ErrorBound(plan.work_type(), plan.roundings(),
                   static_cast<double>(exact.magnitude * std::fabs(scale))));
    const long double value = exact.value * scale;
    // Half an ulp of the largest value that may have to be rounded.
    const int bits = plan.output_type() == DataType::kF64   ? 53
                     : plan.output_type() == DataType::kF32 ? 24
                     : plan.output_type() == DataType::kF16 ? 11
                                                            : 8;
    const long double rounding = std::ldexp(std::fabs(value) + bound, -bits) + 0x1p-25L;
    const bool rounds = plan.work_type() != plan.output_type() || spec.scale() != 1;
    return std::fabs(got - value) <= bound + (rounds ? rounding : 0);
  }

  Threads threads_{2};
  CpuDeviceLog device_log_;
  NoObserver observer_;
  Accelerator accelerator_{std::make_unique<CpuDevice>(&device_log_), AcceleratorOptions(),
                           &observer_};
  KernelSet accelerated_;
  const KernelSet* kernels_ = SupportedKernelSets().front();
  std::map<std::pair<int64_t, int64_t>, Vector> vectors_;
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

void ForEachExtent(const std::function<void(v1::LogitsSpec)>& body) {
  for (const Extent& extent : kExtents) {
    for (v1::Direction direction : kDirections) {
      v1::LogitsSpec spec = Base(extent.queries, extent.keys, extent.offset);
      spec.set_direction(direction);
      SCOPED_TRACE(absl::StrCat(extent.queries, " queries, ", extent.keys, " keys, direction ",
                                static_cast<int>(direction)));
      body(std::move(spec));
    }
  }
}

TEST_F(LogitsTest, ShawKeysMatchTheDefinition) {
  for (auto [left, right] : {std::pair(2, 2), {3, 1}, {0, 4}, {500, 0}}) {
    ForEachExtent([&](v1::LogitsSpec spec) {
      *spec.mutable_shaw_keys() = ShawKeys(left, right, spec.head_dim());
      ExpectTheDefinition(spec);
    });
  }
}

TEST_F(LogitsTest, UsesAcceleratorForProducts) {
  v1::LogitsSpec spec = Base(30, 40);
  *spec.mutable_shaw_keys() = ShawKeys(2, 2, spec.head_dim());
  ExpectTheDefinition(spec);
  EXPECT_GT(device_log_.launches, 0);
}

TEST_F(LogitsTest, ShawKeysPerHeadMatchTheDefinition) {
  ForEachExtent([&](v1::LogitsSpec spec) {
    *spec.mutable_shaw_keys() =
        Shaw(3, 1, RandomRef(DataType::kF32, {spec.num_heads(), 5, spec.head_dim()}, 2));
    ExpectTheDefinition(spec);
  });
}

TEST_F(LogitsTest, ShawValuesMatchTheDefinition) {
  for (auto [left, right] : {std::pair(2, 2), {3, 1}, {0, 0}, {500, 500}}) {
    ForEachExtent([&](v1::LogitsSpec spec) {
      *spec.mutable_shaw_values() =
          Shaw(left, right, RandomRef(DataType::kF32, {left + right + 1, spec.head_dim()}, 3));
      ExpectTheDefinition(spec);
    });
  }
}

TEST_F(LogitsTest, ShawFollowsQueryMinusKeySign) {
  ForEachExtent([&](v1::LogitsSpec spec) {
    const auto reversed = [](int64_t left, int64_t right, const v1::TableRef& table) {
      v1::RelativeTable term = Shaw(left, right, table);
      term.set_sign(v1::RELATIVE_SIGN_QUERY_MINUS_KEY);
      return term;
    };
    const v1::TableRef shared = RandomRef(DataType::kF32, {5, spec.head_dim()}, 4);
    *spec.mutable_shaw_keys() = reversed(3, 1, shared);
    ExpectTheDefinition(spec);
    *spec.mutable_shaw_values() = reversed(3, 1, shared);
    ExpectTheDefinition(spec);
    *spec.mutable_shaw_keys() =
        reversed(1, 3, RandomRef(DataType::kF32, {spec.num_heads(), 5, spec.head_dim()}, 5));
    ExpectTheDefinition(spec);
  });
}

TEST_F(LogitsTest, TransformerXlMatchesTheDefinition) {
  for (bool symmetric : {false, true}) {
    for (const int64_t clamp : {0, 4}) {
      ForEachExtent([&](v1::LogitsSpec spec) {
        v1::SinusoidalDistances& term = *spec.mutable_sinusoidal_distances();
        term = TransformerXl(6, spec.num_heads() * spec.head_dim());
        term.set_symmetric(symmetric);
        if (clamp > 0) term.set_clamp_len(clamp);
        *spec.mutable_query_bias() =
            RandomRef(DataType::kF32, {spec.num_heads(), spec.head_dim()}, 9);
        ExpectTheDefinition(spec);
      });
    }
  }
}

TEST_F(LogitsTest, TransformerXlBiasAloneMatchesTheDefinition) {
  v1::LogitsSpec spec = Base(6, 9);
  *spec.mutable_sinusoidal_distances() = TransformerXl(6, spec.num_heads() * spec.head_dim());
  *spec.mutable_query_bias() = RandomRef(DataType::kF32, {spec.num_heads(), spec.head_dim()}, 9);
  spec.set_bias_alone(true);
  ExpectTheDefinition(spec);
}

TEST_F(LogitsTest, SinusoidsWithoutProjectionMatchTheDefinition) {
  v1::LogitsSpec spec = Base(30, 40);
  *spec.mutable_sinusoidal_distances() = TransformerXl(spec.head_dim(), 1);
  spec.mutable_sinusoidal_distances()->clear_projection();
  ExpectTheDefinition(spec);
}

TEST_F(LogitsTest, AbsoluteKeysMatchTheDefinition) {
  ForEachExtent([&](v1::LogitsSpec spec) {
    const int64_t width = spec.num_heads() * spec.head_dim();
    v1::AbsoluteKeys& term = *spec.mutable_absolute_keys();
    *term.mutable_positions() = RandomRef(DataType::kF32, {spec.key_length() + 3, 4}, 4);
    *term.mutable_projection() = RandomRef(DataType::kF32, {width, 4}, 5);
    ExpectTheDefinition(spec);
    term.clear_projection();
    *term.mutable_positions() = RandomRef(DataType::kF32, {410, spec.head_dim()}, 4);
    ExpectTheDefinition(spec);
    *term.mutable_positions() =
        RandomRef(DataType::kF32, {spec.num_heads(), 402, spec.head_dim()}, 4);
    ExpectTheDefinition(spec);
  });
}

TEST_F(LogitsTest, DecomposedRelativePositionsMatchTheDefinition) {
  struct Case {
    std::array<int, 2> queries;
    std::array<int, 2> keys;
    std::array<int64_t, 2> rows;
  };
  const Case cases[] = {
      {{7, 7}, {7, 7}, {13, 13}},   // a row for each distance, as in SAM
      {{5, 8}, {5, 8}, {13, 13}},   // the same tables, another grid
      {{4, 5}, {4, 5}, {1, 40}},    // one row for all; a longer table
      {{8, 12}, {4, 3}, {15, 23}},  // pooled keys: steps of -2 and -4
      {{9, 7}, {6, 5}, {17, 13}},   // not multiples, so steps vary
      {{3, 4}, {6, 4}, {11, 7}},    // pooled queries
      {{1, 1}, {1, 1}, {1, 1}},    {{1, 6}, {7, 1}, {13, 11}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(absl::StrCat(each.queries[0], " x ", each.queries[1], " by ", each.keys[0], " x ",
                              each.keys[1]));
    v1::LogitsSpec spec = Grids(each.queries, each.keys, each.rows);
    ExpectTheDefinition(spec);
    *spec.mutable_query_bias() = RandomRef(DataType::kF32, {spec.num_heads(), spec.head_dim()}, 9);
    spec.set_scale(-0.3);
    ExpectTheDefinition(spec);
  }
}

TEST_F(LogitsTest, CountsRoundingsOfProductSums) {
  const auto roundings = [](const v1::LogitsSpec& spec) { return (*PlanOf(spec))->roundings(); };
  EXPECT_EQ(roundings(Grids({2, 3}, {2, 3}, {3, 5})), 5 + 1);
  EXPECT_EQ(roundings(Grids({2, 3}, {2, 3}, {3, 4})), 5 + 1 + 2);
  EXPECT_EQ(roundings(Grids({2, 3}, {2, 3}, {3, 4}, DataType::kF64)), 5 + 1 + 1);
}

// In float32, torch selects different rows than exact arithmetic, which yields 6, 5, 4, 2, 1, 0 for
// the first query. All rows match those that numpy computes from the formula.
TEST_F(LogitsTest, GridIndicesMatchFloat32) {
  v1::LogitsSpec spec = Grids({8, 1}, {6, 1}, {15, 1});
  spec.set_num_heads(1);
  spec.set_head_dim(1);
  std::vector<double> indices(15);
  std::iota(indices.begin(), indices.end(), 0);
  v1::DecomposedRelativePositions& term = *spec.mutable_decomposed_relative_positions();
  *term.mutable_rel_pos_h() = RefOf(DataType::kF32, {15, 1}, indices);
  *term.mutable_rel_pos_w() = RefOf(DataType::kF32, {1, 1}, {0});
  EXPECT_THAT(*Compute(*Make(spec), std::vector<double>(8, 1), 0, 8),
              ElementsAre(6, 5, 3, 2, 1, 0, 7, 6, 5, 3, 2, 0,     //
                          8, 7, 6, 4, 3, 1, 9, 8, 7, 5, 4, 2,     //
                          10, 9, 8, 6, 5, 3, 11, 10, 9, 7, 6, 4,  //
                          12, 11, 10, 8, 7, 5, 13, 12, 11, 9, 8, 6));
}

TEST_F(LogitsTest, EveryTypeIsWithinItsErrorBound) {
  constexpr DataType kTypes[] = {DataType::kF64, DataType::kF32, DataType::kF16, DataType::kBF16};
  for (DataType in : kTypes) {
    for (DataType out : kTypes) {
      for (double scale : {1.0, -0.3}) {
        SCOPED_TRACE(absl::StrCat(std::string(NameOf(in)), " to ", std::string(NameOf(out))));
        v1::LogitsSpec spec = Base(11, 17);
        spec.set_head_dim(64);
        spec.set_data_type(static_cast<v1::DataType>(in));
        spec.set_output_data_type(static_cast<v1::DataType>(out));
        spec.set_scale(scale);
        *spec.mutable_shaw_keys() = ShawKeys(4, 3, spec.head_dim(), DataType::kBF16);
        ExpectTheDefinition(spec);
        *spec.mutable_shaw_values() =
            Shaw(4, 3, RandomRef(DataType::kF16, {8, spec.head_dim()}, 3));
        ExpectTheDefinition(spec);
        *spec.mutable_sinusoidal_distances() =
            TransformerXl(24, spec.num_heads() * spec.head_dim());
        *spec.mutable_query_bias() =
            RandomRef(DataType::kF32, {spec.num_heads(), spec.head_dim()}, 9);
        ExpectTheDefinition(spec);
      }
    }
  }
}

TEST_F(LogitsTest, ProductSumsAreWithinTheirErrorBound) {
  constexpr DataType kTypes[] = {DataType::kF64, DataType::kF32, DataType::kF16, DataType::kBF16};
  for (DataType in : kTypes) {
    for (DataType out : kTypes) {
      SCOPED_TRACE(absl::StrCat(std::string(NameOf(in)), " to ", std::string(NameOf(out))));
      v1::LogitsSpec spec = Grids({3, 4}, {3, 4}, {8, 7}, DataType::kBF16);
      spec.set_data_type(static_cast<v1::DataType>(in));
      spec.set_output_data_type(static_cast<v1::DataType>(out));
      ExpectTheDefinition(spec);
    }
  }
}

TEST_F(LogitsTest, LargeTilesOnAllThreadsMatchTheDefinition) {
  v1::LogitsSpec spec = Base(700, 700);
  spec.set_num_heads(2);
  spec.set_head_dim(8);
  spec.set_direction(v1::DIRECTION_LEFT_TO_RIGHT);
  *spec.mutable_sinusoidal_distances() = TransformerXl(10, spec.num_heads() * spec.head_dim());
  ExpectTheDefinition(spec);
}

// With one head, the vectors (10, distance) and the queries (i, 1) yield 10 i + distance, which
// shows the shift (encodings.md, cases 33 to 35).

class ShiftTest : public LogitsTest {
 protected:
  std::vector<double> Shifted(v1::LogitsSpec spec, double per_row) {
    spec.set_num_heads(1);
    spec.set_head_dim(2);
    spec.set_fill_value(-100);
    std::vector<double> vectors;
    for (int r = -10; r <= 10; ++r) {
      vectors.insert(vectors.end(), {per_row, -static_cast<double>(r)});
    }
    *spec.mutable_shaw_keys() = Shaw(10, 10, RefOf(DataType::kF32, {21, 2}, vectors));
    std::vector<double> queries;
    for (int64_t i = 0; i < spec.query_length(); ++i) {
      queries.insert(queries.end(), {static_cast<double>(i), 1});
    }
    return *Compute(*Make(spec), queries, 0, spec.query_length());
  }
};

TEST_F(ShiftTest, TransformerXlFillsShiftedOutEntries) {
  v1::LogitsSpec spec = Base(3, 5);
  spec.set_direction(v1::DIRECTION_LEFT_TO_RIGHT);
  EXPECT_THAT(Shifted(spec, 10), ElementsAre(2, 1, 0, -100, -100,   //
                                             13, 12, 11, 10, -100,  //
                                             24, 23, 22, 21, 20));
  spec.set_direction(v1::DIRECTION_RIGHT_TO_LEFT);
  EXPECT_THAT(Shifted(spec, 10), ElementsAre(-100, -100, 0, -1, -2,    //
                                             -100, -100, -100, 10, 9,  //
                                             -100, -100, -100, -100, 20));
}

TEST_F(ShiftTest, XlnetAndConformerAreSigned) {
  EXPECT_THAT(Shifted(Base(3, 5), 0), ElementsAre(2, 1, 0, -1, -2,  //
                                                  3, 2, 1, 0, -1,   //
                                                  4, 3, 2, 1, 0));
  EXPECT_THAT(Shifted(Base(4, 4), 0), ElementsAre(0, -1, -2, -3, 1, 0, -1, -2,  //
                                                  2, 1, 0, -1, 3, 2, 1, 0));
}

// Equal query rows show which vector each key uses (encodings.md, cases 29 and 30).
TEST_F(LogitsTest, ClipsIndicesToTheReach) {
  const auto indices = [this](v1::LogitsSpec spec, int64_t left, int64_t right,
                              v1::RelativeSign sign = v1::RELATIVE_SIGN_KEY_MINUS_QUERY) {
    spec.set_num_heads(1);
    spec.set_head_dim(1);
    std::vector<double> vectors(left + right + 1);
    std::iota(vectors.begin(), vectors.end(), 0);
    *spec.mutable_shaw_keys() =
        Shaw(left, right, RefOf(DataType::kF32, {left + right + 1, 1}, vectors));
    spec.mutable_shaw_keys()->set_sign(sign);
    return *Compute(*Make(spec), std::vector<double>(spec.query_length(), 1), 0,
                    spec.query_length());
  };
  EXPECT_THAT(indices(Base(3, 5), 2, 2), ElementsAre(0, 1, 2, 3, 4, 0, 0, 1, 2, 3, 0, 0, 0, 1, 2));
  EXPECT_THAT(indices(Base(1, 5), 2, 2), ElementsAre(0, 0, 0, 1, 2));
  const std::vector<double> asymmetric = indices(Base(6, 6), 3, 1);
  EXPECT_THAT(std::vector<double>(asymmetric.begin(), asymmetric.begin() + 6),
              ElementsAre(3, 4, 4, 4, 4, 4));
  EXPECT_THAT(std::vector<double>(asymmetric.end() - 6, asymmetric.end()),
              ElementsAre(0, 0, 0, 1, 2, 3));
  EXPECT_THAT(indices(Base(2, 6, 3), 3, 1, v1::RELATIVE_SIGN_QUERY_MINUS_KEY),
              ElementsAre(4, 3, 2, 1, 0, 0, 4, 4, 3, 2, 1, 0));
}

TEST_F(LogitsTest, MaskedWeightsAreNotRead) {
  v1::LogitsSpec spec = Base(1, 4, 1);
  spec.set_num_heads(1);
  spec.set_head_dim(1);
  spec.set_direction(v1::DIRECTION_LEFT_TO_RIGHT);
  *spec.mutable_shaw_values() = Shaw(0, 0, RefOf(DataType::kF32, {1, 1}, {2}));
  EXPECT_THAT(*Compute(*Make(spec), {1, 10, kNaN, kInfinity}, 0, 1), ElementsAre(22));
}

TEST_F(LogitsTest, FillsFollowOutputType) {
  v1::LogitsSpec spec = Base(1, 2, 0);
  spec.set_num_heads(1);
  spec.set_direction(v1::DIRECTION_LEFT_TO_RIGHT);
  *spec.mutable_shaw_keys() = ShawKeys(1, 1, spec.head_dim());
  spec.set_output_data_type(v1::DATA_TYPE_F16);
  const std::vector<double> query(5, 0);
  EXPECT_THAT(*Compute(*Make(spec), query, 0, 1), ElementsAre(0, -kInfinity));
  spec.set_fill_value(0);
  EXPECT_THAT(*Compute(*Make(spec), query, 0, 1), ElementsAre(0, 0));
  spec.set_fill_lowest(true);
  EXPECT_THAT(*Compute(*Make(spec), query, 0, 1), ElementsAre(0, -65504));
  spec.set_fill_value(1e6);
  EXPECT_THAT(PlanOf(spec), IsInvalid("fill_value: got 1e+06"));
}

TEST_F(LogitsTest, RejectsNonFiniteNumbers) {
  v1::LogitsSpec spec = Base(2, 2);
  *spec.mutable_shaw_keys() = ShawKeys(1, 1, spec.head_dim());
  const auto logits = Make(spec);
  std::vector<double> queries(2 * 3 * 5, 1);
  queries[1 * 10 + 5 + 2] = kNaN;
  EXPECT_THAT(Compute(*logits, queries, 0, 2),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith("data: got "), HasSubstr("at [1, 1, 2], want finite"))));
  queries[17] = 3e38;
  queries[18] = -3e38;
  *spec.mutable_shaw_keys() =
      Shaw(1, 1, RefOf(DataType::kF32, {3, 5}, std::vector<double>(15, 10.0)));
  EXPECT_THAT(Compute(*Make(spec), queries, 0, 2),
              IsInvalid("data: sums of products overflow F32"));
}

TEST_F(LogitsTest, FailsIfCancelledBeforeStart) {
  v1::LogitsSpec spec = Base(100, 100);
  *spec.mutable_sinusoidal_distances() = TransformerXl(6, spec.num_heads() * spec.head_dim());
  const auto caller = std::make_shared<Caller>();
  caller->Cancel();
  EXPECT_THAT(Create(*PlanOf(spec), Resources(), caller),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("canceled")));
}

TEST_F(LogitsTest, FailsIfVectorsExceedBudget) {
  v1::LogitsSpec spec = Base(100, 100);
  *spec.mutable_sinusoidal_distances() = TransformerXl(6, spec.num_heads() * spec.head_dim());
  LogitsResources resources = Resources();
  resources.allocate = [](int64_t) -> absl::StatusOr<BudgetedBuffer> {
    return absl::ResourceExhaustedError("full");
  };
  EXPECT_THAT(Create(*PlanOf(spec), resources),
              StatusIs(absl::StatusCode::kResourceExhausted, "full"));
}

TEST_F(LogitsTest, FailsIfWorkingMemoryExceedsBudget) {
  v1::LogitsSpec spec = Base(100, 100);
  *spec.mutable_sinusoidal_distances() = TransformerXl(6, spec.num_heads() * spec.head_dim());
  LogitsResources resources = Resources();
  int64_t asked = 0;
  resources.reserve = [&](int64_t bytes) -> absl::StatusOr<ByteBudget::Reservation> {
    asked = bytes;
    return absl::ResourceExhaustedError("full");
  };
  EXPECT_THAT(Create(*PlanOf(spec), resources),
              StatusIs(absl::StatusCode::kResourceExhausted, "full"));
  // Rotations by up to 256 positions, with a kernel's minimum number of pairs.
  EXPECT_GE(asked, 256 * kPairMultiple * 32);
}

}  // namespace
}  // namespace attnbias::logits_test
