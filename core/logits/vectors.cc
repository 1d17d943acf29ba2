// SPDX-License-Identifier: Apache-2.0
// Makes the vectors that queries are multiplied with; never one for each pair.
#include <cblas.h>

#include <algorithm>
#include <utility>

#include "core/base/errors.h"
#include "core/logits/positional_logits.h"

namespace attnbias {
namespace {

// The caller's threads are the parallelism. OpenBLAS must be a build with
// threads all the same (Debian's pthread): products of several callers at once
// spoil one another in its serial builds.
void UseOneThread() {
  static const bool once = [] {
    openblas_set_num_threads(1);
    return true;
  }();
  (void)once;
}

template <typename T>
constexpr auto* kGemv = &cblas_sgemv;
template <>
constexpr auto* kGemv<double> = &cblas_dgemv;
template <typename T>
constexpr auto* kGemm = &cblas_sgemm;
template <>
constexpr auto* kGemm<double> = &cblas_dgemm;

blasint Int(int64_t value) { return static_cast<blasint>(value); }

// Converts numbers to `type`, a work_type().
void Convert(const double* in, int64_t count, DataType type, std::byte* out) {
  if (type == DataType::kF64) {
    std::copy_n(in, count, reinterpret_cast<double*>(out));
  } else {
    std::copy_n(in, count, reinterpret_cast<float*>(out));
  }
}

// Writes what the encoding has for `vectors` of one lane.
void FillVectors(const Evaluator& evaluator, const Summand& summand,
                 int64_t lane, Range vectors, double* out) {
  const int64_t first = summand.first;
  const Range coordinates =
      summand.descends
          ? Range{first - vectors.end + 1, first - vectors.begin + 1}
          : Range{first + vectors.begin, first + vectors.end};
  evaluator.Fill({{lane, lane + 1}, coordinates},
                 reinterpret_cast<std::byte*>(out), 0);
  if (!summand.descends) return;
  const int64_t width = summand.encoding->width;
  double* front = out;
  double* back = out + (vectors.size() - 1) * width;
  for (; front < back; front += width, back -= width) {
    std::swap_ranges(front, front + width, back);
  }
}

absl::StatusOr<BudgetedBuffer> ReadNumbers(const Table& table,
                                           const LogitsResources& resources) {
  ATTNBIAS_ASSIGN_OR_RETURN(BudgetedBuffer buffer,
                            resources.allocate(table.size() * 8));
  auto* const numbers = reinterpret_cast<double*>(buffer.bytes.data());
  for (int64_t i = 0; i < table.size(); ++i) numbers[i] = table.At(i);
  return buffer;
}

// Vectors that are being made.
class Maker {
 public:
  Maker(const LogitsPlan& plan, const Summand& summand,
        const LogitsResources& resources)
      : plan_(plan), summand_(summand), resources_(resources) {}

  absl::Status Allocate() {
    if (projects()) {
      ATTNBIAS_ASSIGN_OR_RETURN(projection_,
                                ReadNumbers(*summand_.projection, resources_));
    }
    const int64_t numbers = lanes() * summand_.count * stride();
    ATTNBIAS_ASSIGN_OR_RETURN(
        memory_, resources_.allocate(numbers * SizeOf(plan_.work_type())));
    out_ = memory_.bytes.data();
    ATTNBIAS_ASSIGN_OR_RETURN(
        evaluator_memory_,
        resources_.reserve(summand_.encoding->evaluator_bytes));
    return absl::OkStatus();
  }

  EvaluatorPtr Prepare() const {
    return summand_.encoding->prepare({DataType::kF64}, resources_.kernels);
  }
  void SetEvaluator(EvaluatorPtr evaluator) {
    evaluator_ = std::move(evaluator);
  }

  int64_t count() const { return lanes() * summand_.count; }
  int64_t unit() const { return evaluator_->batch(); }

  // Those from `begin` to `end`, counted over all lanes.
  absl::Status Make(int64_t begin, int64_t end) const {
    while (begin < end) {
      const int64_t lane = begin / summand_.count;
      const int64_t first = begin % summand_.count;
      const Range vectors = {first,
                             std::min(first + end - begin, summand_.count)};
      ATTNBIAS_RETURN_IF_ERROR(MakeOfLane(lane, vectors));
      begin += vectors.size();
    }
    return absl::OkStatus();
  }

  Vectors Take() {
    const int64_t head_dim = plan_.spec().head_dim();
    const int64_t head_stride = lanes() > 1  ? summand_.count * head_dim
                                : projects() ? head_dim
                                             : 0;
    return {std::move(memory_), head_stride, stride()};
  }

 private:
  // A projected row has the vectors of all heads.
  bool projects() const { return summand_.projection.has_value(); }
  int64_t lanes() const { return projects() ? 1 : summand_.heads; }
  int64_t width() const { return summand_.encoding->width; }
  int64_t stride() const {
    return projects() ? summand_.heads * plan_.spec().head_dim()
                      : plan_.spec().head_dim();
  }

  absl::Status MakeOfLane(int64_t lane, Range vectors) const {
    const int64_t rows = vectors.size();
    ATTNBIAS_ASSIGN_OR_RETURN(
        BudgetedBuffer scratch,
        resources_.allocate(rows * (width() + stride()) * 8));
    auto* made = reinterpret_cast<double*>(scratch.bytes.data());
    FillVectors(*evaluator_, summand_, lane, vectors, made);
    if (projects()) {
      const auto* const numbers =
          reinterpret_cast<const double*>(projection_.bytes.data());
      double* const projected = made + rows * width();
      Multiply<double>({made, rows, width(), width()},
                       {numbers, stride(), width(), width()}, true, projected);
      made = projected;
    }
    const int64_t before = (lane * summand_.count + vectors.begin) * stride();
    Convert(made, rows * stride(), plan_.work_type(),
            out_ + before * SizeOf(plan_.work_type()));
    return absl::OkStatus();
  }

  const LogitsPlan& plan_;
  const Summand& summand_;
  const LogitsResources& resources_;
  BudgetedBuffer projection_;
  BudgetedBuffer memory_;
  std::byte* out_ = nullptr;
  // Outlives the evaluator, for whose memory it stands.
  ByteBudget::Reservation evaluator_memory_;
  EvaluatorPtr evaluator_;
};

}  // namespace

template <typename T>
void Multiply(const MatrixView<T>& a, const MatrixView<T>& b, bool b_transposed,
              T* out) {
  UseOneThread();
  // One row is a product with a vector, for which b is not repacked.
  if (a.rows == 1 && b_transposed) {
    return kGemv<T>(CblasRowMajor, CblasNoTrans, Int(b.rows), Int(b.columns), 1,
                    b.data, Int(b.stride), a.data, 1, 0, out, 1);
  }
  const int64_t columns = b_transposed ? b.rows : b.columns;
  kGemm<T>(CblasRowMajor, CblasNoTrans,
           b_transposed ? CblasTrans : CblasNoTrans, Int(a.rows), Int(columns),
           Int(a.columns), 1, a.data, Int(a.stride), b.data, Int(b.stride), 0,
           out, Int(columns));
}

template void Multiply(const MatrixView<float>& a, const MatrixView<float>& b,
                       bool b_transposed, float* out);
template void Multiply(const MatrixView<double>& a, const MatrixView<double>& b,
                       bool b_transposed, double* out);

void MakeVectors(const LogitsPlan& plan, const Summand& summand,
                 const LogitsResources& resources, CallerPtr caller,
                 absl::AnyInvocable<void(absl::StatusOr<Vectors>)> done) {
  const auto maker = std::make_shared<Maker>(plan, summand, resources);
  if (absl::Status status = maker->Allocate(); !status.ok()) {
    return done(status);
  }
  Executor& executor = resources.executor;
  auto make = [&executor, maker, caller, done = std::move(done)](
                  absl::StatusOr<EvaluatorPtr> made) mutable {
    if (!made.ok()) return done(made.status());
    maker->SetEvaluator(*std::move(made));
    ForRanges(
        executor, std::move(caller), maker->count(), maker->unit(),
        [maker](int64_t begin, int64_t end) { return maker->Make(begin, end); },
        [maker, done = std::move(done)](const absl::Status& status) mutable {
          if (!status.ok()) return done(status);
          done(maker->Take());
        });
  };
  MakeUncut(
      executor, caller, summand.encoding->takes_long_to_prepare(),
      [maker] { return maker->Prepare(); }, std::move(make));
}

}  // namespace attnbias
