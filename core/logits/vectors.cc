// SPDX-License-Identifier: Apache-2.0
// Makes the vectors with which queries are multiplied; never one for each pair.
#include <cblas.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "core/base/errors.h"
#include "core/cache/band_cache.h"
#include "core/logits/positional_logits.h"

namespace attnbias {
namespace {

template <typename T>
constexpr auto* kGemv = &cblas_sgemv;
template <>
constexpr auto* kGemv<double> = &cblas_dgemv;
template <typename T>
constexpr auto* kGemm = &cblas_sgemm;
template <>
constexpr auto* kGemm<double> = &cblas_dgemm;

// Numbers of one block of vectors, which bounds the memory for making them.
constexpr int64_t kBlockNumbers = int64_t{1} << 18;

blasint Int(int64_t value) { return static_cast<blasint>(value); }

// Converts numbers to `type`, a work_type().
void Convert(const double* in, int64_t count, DataType type, std::byte* out) {
  if (type == DataType::kF64) {
    std::copy_n(in, count, reinterpret_cast<double*>(out));
  } else {
    std::copy_n(in, count, reinterpret_cast<float*>(out));
  }
}

// Writes the encoding's numbers for `vectors` of one lane.
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

}  // namespace

template <typename T>
void Multiply(const MatrixView<T>& a, const MatrixView<T>& b, bool b_transposed, T* out) {
  // The caller's threads are the parallelism. OpenBLAS must be a build with threads all the same
  // (Debian's pthread): concurrent products spoil one another in its serial builds.
  static std::once_flag once;
  std::call_once(once, openblas_set_num_threads, 1);
  // One row is a product with a vector, for which b is not repacked.
  if (a.rows == 1 && b_transposed) {
    return kGemv<T>(CblasRowMajor, CblasNoTrans, Int(b.rows), Int(b.columns), 1, b.data,
                    Int(b.stride), a.data, 1, 0, out, 1);
  }
  const int64_t columns = b_transposed ? b.rows : b.columns;
  kGemm<T>(CblasRowMajor, CblasNoTrans, b_transposed ? CblasTrans : CblasNoTrans, Int(a.rows),
           Int(columns), Int(a.columns), 1, a.data, Int(a.stride), b.data, Int(b.stride), 0, out,
           Int(columns));
}

template void Multiply(const MatrixView<float>& a, const MatrixView<float>& b, bool b_transposed,
                       float* out);
template void Multiply(const MatrixView<double>& a, const MatrixView<double>& b, bool b_transposed,
                       double* out);

// Makes the vectors of one component after another.
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
  // A projected row has the vectors of all heads.
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

  // Makes the vectors from `begin` to `end`, counted over all lanes.
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
    Convert(made, rows * stride, plan_->work_type(),
            factors_.back().memory.bytes.data() + before * SizeOf(plan_->work_type()));
    return absl::OkStatus();
  }

  const LogitsPlanPtr plan_;
  const LogitsResources resources_;
  const CallerPtr caller_;
  Done done_;
  std::vector<Factor> factors_;
  // State of the last factor, while it is made.
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
