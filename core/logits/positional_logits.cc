// SPDX-License-Identifier: Apache-2.0
#include "core/logits/positional_logits.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#include "core/base/errors.h"
#include "core/cache/band_cache.h"
#include "core/numerics/narrow.h"
#include "core/tensor/data_type.h"

namespace attnbias {
namespace {

// Row-major; row i begins at data + i * stride. Lengths and stride fit in 31 bits.
template <typename T>
struct MatrixView {
  const T* data;
  int64_t rows;
  int64_t columns;
  int64_t stride;
};

template <typename T>
constexpr auto* kGemv = &cblas_sgemv;
template <>
constexpr auto* kGemv<double> = &cblas_dgemv;
template <typename T>
constexpr auto* kGemm = &cblas_sgemm;
template <>
constexpr auto* kGemm<double> = &cblas_dgemm;

blasint Int(int64_t value) { return static_cast<blasint>(value); }

// Writes a b (a b^T if `b_transposed`) to `out`, row-major without gaps, overwriting whatever `out`
// held. Uses the system's BLAS, on the calling thread only. T is float or double.
template <typename T>
void Multiply(const MatrixView<T>& a, const MatrixView<T>& b, bool b_transposed, T* out) {
  // Parallelism comes from the caller's threads. OpenBLAS must nevertheless be a threaded build
  // (Debian's pthread): in serial builds concurrent products corrupt each other.
  static std::once_flag once;
  std::call_once(once, openblas_set_num_threads, 1);
  // With one row this is a matrix-vector product, for which b is not repacked.
  if (a.rows == 1 && b_transposed) {
    return kGemv<T>(CblasRowMajor, CblasNoTrans, Int(b.rows), Int(b.columns), 1, b.data,
                    Int(b.stride), a.data, 1, 0, out, 1);
  }
  const int64_t columns = b_transposed ? b.rows : b.columns;
  kGemm<T>(CblasRowMajor, CblasNoTrans, b_transposed ? CblasTrans : CblasNoTrans, Int(a.rows),
           Int(columns), Int(a.columns), 1, a.data, Int(a.stride), b.data, Int(b.stride), 0, out,
           Int(columns));
}

// Number of elements in one block of vectors. Bounds the memory for computing them.
constexpr int64_t kBlockNumbers = int64_t{1} << 18;

template <class Element, typename Work>
void RoundEach(const Work* in, int64_t count, double scale, std::byte* out) {
  for (int64_t i = 0; i < count; ++i) {
    const typename Element::Bits bits = Element::Of(static_cast<double>(in[i]) * scale);
    std::memcpy(out + i * sizeof(bits), &bits, sizeof(bits));
  }
}

// Scales values and rounds them to `type`. `out` may be `in` if `type` is no wider than Work: each
// value is then read before it is overwritten.
template <typename Work>
void RoundTo(DataType type, const Work* in, int64_t count, double scale, std::byte* out) {
  if (type == DataType::kF64) return RoundEach<F64Element>(in, count, scale, out);
  if (type == DataType::kF32) return RoundEach<F32Element>(in, count, scale, out);
  if (type == DataType::kF16) return RoundEach<F16Element>(in, count, scale, out);
  RoundEach<Bf16Element>(in, count, scale, out);
}

// Writes the encoding's values for `vectors` in one lane.
void FillVectors(const Evaluator& evaluator, const TermComponent& component, int64_t lane,
                 Range vectors, double* out) {
  const int64_t first = component.first;
  const Range coordinates = component.descends
                                ? Range{first - vectors.end + 1, first - vectors.begin + 1}
                                : Range{first + vectors.begin, first + vectors.end};
  evaluator.Fill({{lane, lane + 1}, coordinates}, reinterpret_cast<std::byte*>(out), 0);
  if (!component.descends) return;
  const int64_t width = component.encoding->width;
  double* front = out;
  double* back = out + (vectors.size() - 1) * width;
  for (; front < back; front += width, back -= width) {
    std::swap_ranges(front, front + width, back);
  }
}

absl::StatusOr<BudgetedBuffer> ReadNumbers(const Table& table, const LogitsResources& resources) {
  ATTNBIAS_ASSIGN_OR_RETURN(BudgetedBuffer buffer, resources.allocate(table.size() * 8));
  auto* const numbers = reinterpret_cast<double*>(buffer.bytes.data());
  for (int64_t i = 0; i < table.size(); ++i) numbers[i] = table.At(i);
  return buffer;
}

// Number of products in a tile: as many as fit in a core's private cache. Each row needs a window
// of vectors, shifted by one from the previous row's window. A tile multiplies all its rows by the
// union of these windows, so a taller tile computes more unused products.
constexpr int64_t kTileProducts = int64_t{1} << 18;
constexpr int64_t kMaxTileRows = 128;

int64_t TileRows(const LogitsPlan& plan) {
  const int64_t keys = plan.spec().key_length();
  const auto& components = plan.term().components;
  const int64_t products =
      components.size() > 1 ? keys : std::min(components[0].count, keys + kMaxTileRows);
  return std::clamp<int64_t>(kTileProducts / std::max<int64_t>(products, 1), 1, kMaxTileRows);
}

// Adds the products for a segment's keys to the keys' sums; `products` points to the product for
// the first key.
template <typename Work>
void AddKeySegment(const Work* products, const KeySegment& segment, Work* sums) {
  const auto add = [&](auto step) {
    for (int64_t i = 0; i < segment.keys.size(); ++i) {
      sums[i] += products[i * step];
    }
  };
  // Steps 0 and -1 are constants, so that the compiler vectorizes the loops.
  if (segment.step == 0) return add(std::integral_constant<int64_t, 0>());
  if (segment.step == -1) return add(std::integral_constant<int64_t, -1>());
  add(segment.step);
}

// Reads the values at `in`, which may have any alignment. Exact: types wider than a float are
// computed in double.
template <typename Work>
void Widen(DataType type, const std::byte* in, int64_t count, Work* out) {
  if (SizeOf(type) == sizeof(Work) && count > 0) {
    std::memcpy(out, in, count * sizeof(Work));
    return;
  }
  const int64_t size = SizeOf(type);
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<Work>(ReadElement(type, in + i * size));
  }
}

template <typename Work>
bool AllFinite(const Work* numbers, int64_t count) {
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    finite &= std::fabs(numbers[i]) <= std::numeric_limits<Work>::max();
  }
  return finite;
}

// Rows of one head, counted from query 0, and the destination of their result.
struct Tile {
  int64_t head;
  Range rows;
  std::byte* out;
};

}  // namespace

// Computes a tile, with products of type Work.
template <typename Work>
class PositionalLogits::TileComputer {
 public:
  TileComputer(const PositionalLogits& logits, const RowBlock& block, const Tile& tile)
      : logits_(logits),
        plan_(*logits.plan_),
        spec_(plan_.spec()),
        block_(block),
        head_(tile.head),
        rows_(tile.rows),
        out_(tile.out) {}

  absl::Status Compute() const { return plan_.term().weighs_values ? Weigh() : Multiply(); }

 private:
  // The products of row n are row n of one matrix, whose columns are vectors. Each row uses a
  // window of columns that moves by one from row to row. If there are several components, the
  // columns are keys instead, and hold sums of products.
  absl::Status Multiply() const {
    const int64_t width = spec_.head_dim();
    const Factor& factor = logits_.factors_[0];
    const bool adds = logits_.factors_.size() > 1;
    const Range columns = adds ? Range{0, spec_.key_length()} : VectorsOf(factor);
    ATTNBIAS_ASSIGN_OR_RETURN(BudgetedBuffer scratch,
                              Allocate(rows_.size() * (width + columns.size())));
    auto* const queries = reinterpret_cast<Work*>(scratch.bytes.data());
    Work* const products = queries + rows_.size() * width;
    ATTNBIAS_RETURN_IF_ERROR(ReadQueries(queries));
    if (adds) {
      ATTNBIAS_RETURN_IF_ERROR(AddProducts(queries, products));
    } else {
      MultiplyVectors(factor, columns, queries, products);
    }
    auto* const served = reinterpret_cast<std::byte*>(products);
    ATTNBIAS_RETURN_IF_ERROR(Round(products, rows_.size() * columns.size(), served));
    const int64_t row_bytes = columns.size() * SizeOf(plan_.output_type());
    for (int64_t i = 0; i < rows_.size(); ++i) {
      const int64_t row = rows_.begin + i;
      const Range visible = plan_.VisibleKeys(row);
      Spread(adds ? KeySegments{{visible, visible.begin, 1}}
                  : plan_.KeySegmentsOf(factor.component, row),
             served + i * row_bytes, columns.begin, out_ + i * plan_.output_row_bytes());
    }
    return absl::OkStatus();
  }

  // Writes the sum of the products for each row and key.
  absl::Status AddProducts(const Work* queries, Work* sums) const {
    const int64_t keys = spec_.key_length();
    std::fill_n(sums, rows_.size() * keys, Work{0});
    for (const Factor& factor : logits_.factors_) {
      const Range vectors = VectorsOf(factor);
      ATTNBIAS_ASSIGN_OR_RETURN(BudgetedBuffer scratch, Allocate(rows_.size() * vectors.size()));
      auto* const products = reinterpret_cast<Work*>(scratch.bytes.data());
      MultiplyVectors(factor, vectors, queries, products);
      for (int64_t i = 0; i < rows_.size(); ++i) {
        for (const KeySegment& segment : plan_.KeySegmentsOf(factor.component, rows_.begin + i)) {
          const int64_t first = segment.vector - vectors.begin;
          AddKeySegment(products + i * vectors.size() + first, segment,
                        sums + i * keys + segment.keys.begin);
        }
      }
    }
    return absl::OkStatus();
  }

  // Adds up the weights of all keys that use a vector, and multiplies the sums by the vectors.
  absl::Status Weigh() const {
    const int64_t width = spec_.head_dim();
    const Factor& factor = logits_.factors_[0];
    const Range vectors = VectorsOf(factor);
    ATTNBIAS_ASSIGN_OR_RETURN(
        BudgetedBuffer scratch,
        Allocate(rows_.size() * (width + vectors.size()) + spec_.key_length()));
    auto* const gathered = reinterpret_cast<Work*>(scratch.bytes.data());
    Work* const sums = gathered + rows_.size() * vectors.size();
    Work* const weights = sums + rows_.size() * width;
    std::fill(gathered, weights, Work{0});
    for (int64_t i = 0; i < rows_.size(); ++i) {
      const int64_t row = rows_.begin + i;
      Work* const of_row = gathered + i * vectors.size();
      for (const KeySegment& segment : plan_.KeySegmentsOf(factor.component, row)) {
        ATTNBIAS_RETURN_IF_ERROR(Read(row, segment.keys, weights));
        Work* const first = of_row + (segment.vector - vectors.begin);
        if (segment.step == 0) {
          double sum = 0;
          for (int64_t k = 0; k < segment.keys.size(); ++k) sum += weights[k];
          *first += static_cast<Work>(sum);
        } else {
          for (int64_t k = 0; k < segment.keys.size(); ++k) {
            first[k * segment.step] += weights[k];
          }
        }
      }
    }
    MultiplyVectors(factor, vectors, gathered, sums);
    return Round(sums, rows_.size() * width, out_);
  }

  // Computes a VectorProduct with the accelerator if it accepts, otherwise with the BLAS.
  void MultiplyVectors(const Factor& factor, Range range, const Work* input, Work* out) const {
    if (range.size() == 0) return;
    const VectorProduct product = {
        .rows = rows_.size(),
        .vectors = range.size(),
        .width = spec_.head_dim(),
        .stride = factor.stride,
        .first = head_ * factor.head_stride + range.begin * factor.stride,
        .transposed = !plan_.term().weighs_values};
    const int64_t out_bytes =
        product.rows * product.output_columns() * static_cast<int64_t>(sizeof(Work));
    if (factor.on_device != nullptr &&
        logits_.resources_.kernels.accelerator->Wants(out_bytes, false) &&
        factor.on_device->Multiply(product, plan_.work_type(),
                                   reinterpret_cast<const std::byte*>(input),
                                   reinterpret_cast<std::byte*>(out))) {
      return;
    }
    const auto* const numbers = reinterpret_cast<const Work*>(factor.memory.bytes.data());
    const int64_t columns = product.input_columns();
    attnbias::Multiply<Work>(
        {input, product.rows, columns, columns},
        {numbers + product.first, product.vectors, product.width, product.stride},
        product.transposed, out);
  }

  absl::Status ReadQueries(Work* query) const {
    const int64_t width = spec_.head_dim();
    for (int64_t row = rows_.begin; row < rows_.end; ++row, query += width) {
      if (spec_.bias_alone()) {
        std::fill_n(query, width, Work{0});
      } else {
        ATTNBIAS_RETURN_IF_ERROR(Read(row, {0, width}, query));
      }
      if (!plan_.query_bias().has_value()) continue;
      for (int64_t i = 0; i < width; ++i) {
        query[i] += static_cast<Work>(plan_.query_bias()->At(head_, i));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Read(int64_t row, Range elements, Work* out) const {
    const int64_t block_row = row - block_.first_row;
    const int64_t index =
        (head_ * block_.num_rows + block_row) * plan_.input_width() + elements.begin;
    Widen(plan_.input_type(), block_.data + index * SizeOf(plan_.input_type()), elements.size(),
          out);
    if (AllFinite(out, elements.size())) return absl::OkStatus();
    const Work* const strange = std::find_if_not(out, out + elements.size(),
                                                 [](Work number) { return std::isfinite(number); });
    return Invalid("data: got ", *strange, " at [", head_, ", ", block_row, ", ",
                   elements.begin + (strange - out), "], want finite numbers");
  }

  // Scales products and rounds them to the output type, possibly in place.
  absl::Status Round(Work* products, int64_t count, std::byte* out) const {
    if (!AllFinite(products, count)) {
      return Invalid("data: sums of products overflow ", std::string(NameOf(plan_.work_type())),
                     ", want smaller numbers or a wider type");
    }
    const double scale = spec_.scale();
    const DataType type = plan_.output_type();
    if (scale == 1 && SizeOf(type) == sizeof(Work)) {
      std::memmove(out, products, count * sizeof(Work));
      return absl::OkStatus();
    }
    RoundTo(type, products, count, scale, out);
    return absl::OkStatus();
  }

  // Copies a row's products to the columns of their keys, and the fill value to the columns of keys
  // outside segments.
  void Spread(const KeySegments& segments, const std::byte* products, int64_t first_vector,
              std::byte* out) const {
    const DataType type = plan_.output_type();
    const int64_t size = SizeOf(type);
    int64_t key = 0;
    for (const KeySegment& segment : segments) {
      Repeat(plan_.fill(), size, segment.keys.begin - key, out + key * size);
      const int64_t count = segment.keys.size();
      const std::byte* const from = products + (segment.vector - first_vector) * size;
      std::byte* const to = out + segment.keys.begin * size;
      if (segment.step == 0) {
        Repeat(from, size, count, to);
      } else if (segment.step == 1) {
        std::memcpy(to, from, count * size);
      } else {
        WithBitsOf(type, [=]<typename Bits>(Bits /*zero*/) {
          const auto* const end = reinterpret_cast<const Bits*>(from) + 1;
          std::reverse_copy(end - count, end, reinterpret_cast<Bits*>(to));
        });
      }
      key = segment.keys.end;
    }
    Repeat(plan_.fill(), size, spec_.key_length() - key, out + key * size);
  }

  // Returns the range of vectors that the rows' keys use.
  Range VectorsOf(const Factor& factor) const {
    Range vectors = {std::numeric_limits<int64_t>::max(), 0};
    for (int64_t row = rows_.begin; row < rows_.end; ++row) {
      for (const KeySegment& segment : plan_.KeySegmentsOf(factor.component, row)) {
        const auto [least, most] = std::minmax({segment.vector, segment.last_vector()});
        vectors = Union(vectors, {least, most + 1});
      }
    }
    return vectors.size() > 0 ? vectors : Range{};
  }

  absl::StatusOr<BudgetedBuffer> Allocate(int64_t count) const {
    return logits_.resources_.allocate(count * static_cast<int64_t>(sizeof(Work)));
  }

  const PositionalLogits& logits_;
  const LogitsPlan& plan_;
  const v1::LogitsSpec& spec_;
  const RowBlock& block_;
  const int64_t head_;
  const Range rows_;
  std::byte* const out_;
};

PositionalLogits::PositionalLogits(LogitsPlanPtr plan, LogitsResources resources,
                                   std::vector<Factor> factors)
    : plan_(std::move(plan)),
      resources_(std::move(resources)),
      factors_(std::move(factors)),
      tile_rows_(TileRows(*plan_)) {
  // Upper bound on the bytes of a tile's products.
  const int64_t most_bytes = kTileProducts * SizeOf(plan_->work_type());
  Accelerator* const accelerator = resources_.kernels.accelerator;
  if (accelerator == nullptr || !accelerator->Wants(most_bytes, false)) return;
  for (Factor& factor : factors_) {
    const AlignedBuffer& vectors = factor.memory.bytes;
    factor.on_device = accelerator->KeepVectors(vectors.data(), vectors.size());
  }
}

int64_t PositionalLogits::memory_bytes() const {
  int64_t bytes = 0;
  for (const Factor& factor : factors_) bytes += factor.memory.bytes.size();
  return bytes;
}

void PositionalLogits::Compute(const RowBlock& block, Range lines, std::byte* out, CallerPtr caller,
                               absl::AnyInvocable<void(absl::Status)> done) const {
  std::vector<Tile> tiles;
  for (int64_t line = lines.begin; line < lines.end;) {
    const int64_t row = line % block.num_rows;
    const int64_t count = std::min({tile_rows_, block.num_rows - row, lines.end - line});
    const int64_t first = block.first_row + row;
    tiles.push_back({line / block.num_rows,
                     {first, first + count},
                     out + (line - lines.begin) * plan_->output_row_bytes()});
    line += count;
  }
  const auto count = static_cast<int64_t>(tiles.size());
  const auto compute = [this, block, tiles = std::move(tiles)](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      ATTNBIAS_RETURN_IF_ERROR(plan_->work_type() == DataType::kF64
                                   ? TileComputer<double>(*this, block, tiles[i]).Compute()
                                   : TileComputer<float>(*this, block, tiles[i]).Compute());
    }
    return absl::OkStatus();
  };
  ForRanges(resources_.executor, std::move(caller), count, 1, compute, std::move(done));
}

// Computes the vectors of one component after another.
class PositionalLogits::Builder : public std::enable_shared_from_this<PositionalLogits::Builder> {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<PositionalLogitsPtr>)>;

  Builder(LogitsPlanPtr plan, LogitsResources resources, CallerPtr caller, Done done)
      : plan_(std::move(plan)),
        resources_(std::move(resources)),
        caller_(std::move(caller)),
        done_(std::move(done)) {}

  void Proceed() {
    evaluator_ = {};
    projection_ = {};
    if (factors_.size() == plan_->term().components.size()) {
      return done_(
          PositionalLogitsPtr(new PositionalLogits(plan_, resources_, std::move(factors_))));
    }
    if (absl::Status status = Allocate(); !status.ok()) return done_(status);
    const Encoding& encoding = *component().encoding;
    RunBlocking(
        resources_.executor, caller_, encoding.takes_long_to_prepare(),
        [this, &encoding] { return encoding.prepare({DataType::kF64}, resources_.kernels); },
        [self = shared_from_this()](absl::StatusOr<EvaluatorPtr> made) {
          if (!made.ok()) return self->done_(made.status());
          self->evaluator_.numbers = *std::move(made);
          self->Fill();
        });
  }

 private:
  const TermComponent& component() const { return factors_.back().component; }
  bool projects() const { return component().projection.has_value(); }
  // A projected row contains the vectors of all heads.
  int64_t lanes() const { return projects() ? 1 : component().heads; }

  absl::Status Allocate() {
    Factor& factor = factors_.emplace_back(Factor{plan_->term().components[factors_.size()]});
    const int64_t head_dim = plan_->spec().head_dim();
    factor.stride = projects() ? component().heads * head_dim : head_dim;
    factor.head_stride = lanes() > 1 ? component().count * head_dim : projects() ? head_dim : 0;
    if (projects()) {
      ATTNBIAS_ASSIGN_OR_RETURN(projection_, ReadNumbers(*component().projection, resources_));
    }
    ATTNBIAS_ASSIGN_OR_RETURN(factor.memory,
                              resources_.allocate(lanes() * component().count * factor.stride *
                                                  SizeOf(plan_->work_type())));
    ATTNBIAS_ASSIGN_OR_RETURN(evaluator_.memory,
                              resources_.reserve(component().encoding->evaluator_bytes));
    return absl::OkStatus();
  }

  void Fill() {
    ForRanges(
        resources_.executor, caller_, lanes() * component().count, evaluator_.numbers->batch(),
        [self = shared_from_this()](int64_t begin, int64_t end) { return self->Make(begin, end); },
        [self = shared_from_this()](const absl::Status& status) {
          if (!status.ok()) return self->done_(status);
          self->Proceed();
        });
  }

  // Computes the vectors from `begin` to `end`, counted over all lanes.
  absl::Status Make(int64_t begin, int64_t end) {
    const int64_t count = component().count;
    const int64_t row_numbers = component().encoding->width + factors_.back().stride;
    const int64_t block = std::max<int64_t>(1, kBlockNumbers / row_numbers);
    while (begin < end) {
      if (caller_->cancelled()) return absl::CancelledError();
      const int64_t first = begin % count;
      const Range vectors = {first, std::min({first + end - begin, first + block, count})};
      ATTNBIAS_RETURN_IF_ERROR(MakeOfLane(begin / count, vectors));
      begin += vectors.size();
    }
    return absl::OkStatus();
  }

  absl::Status MakeOfLane(int64_t lane, Range vectors) {
    const int64_t rows = vectors.size();
    const int64_t width = component().encoding->width;
    const int64_t stride = factors_.back().stride;
    ATTNBIAS_ASSIGN_OR_RETURN(BudgetedBuffer scratch,
                              resources_.allocate(rows * (width + stride) * 8));
    auto* made = reinterpret_cast<double*>(scratch.bytes.data());
    FillVectors(*evaluator_.numbers, component(), lane, vectors, made);
    if (projects()) {
      const auto* const numbers = reinterpret_cast<const double*>(projection_.bytes.data());
      double* const projected = made + rows * width;
      Multiply<double>({made, rows, width, width}, {numbers, stride, width, width}, true,
                       projected);
      made = projected;
    }
    const int64_t before = (lane * component().count + vectors.begin) * stride;
    RoundTo(plan_->work_type(), made, rows * stride, /*scale=*/1,
            factors_.back().memory.bytes.data() + before * SizeOf(plan_->work_type()));
    return absl::OkStatus();
  }

  const LogitsPlanPtr plan_;
  const LogitsResources resources_;
  const CallerPtr caller_;
  Done done_;
  std::vector<Factor> factors_;
  // State of the last factor while it is being computed.
  BudgetedBuffer projection_;
  BudgetedEvaluator evaluator_;
};

void PositionalLogits::Create(LogitsPlanPtr plan, LogitsResources resources,
                              const CallerPtr& caller,
                              absl::AnyInvocable<void(absl::StatusOr<PositionalLogitsPtr>)> done) {
  std::make_shared<Builder>(std::move(plan), std::move(resources), caller, std::move(done))
      ->Proceed();
}

}  // namespace attnbias
