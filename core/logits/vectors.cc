// SPDX-License-Identifier: Apache-2.0
#include "core/logits/vectors.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "core/base/mutex.h"
#include "core/base/status_macros.h"

namespace attnbias {
namespace {

// Threads take vectors by the block of so many numbers, and look for a
// cancellation before each.
constexpr int64_t kBlockNumbers = int64_t{1} << 17;
constexpr int64_t kMaxBlockRows = 256;

// Converts numbers to `type`, a work_type().
void Convert(const double* in, int64_t count, DataType type, std::byte* out) {
  if (type == DataType::kF64) {
    std::copy_n(in, count, reinterpret_cast<double*>(out));
  } else {
    std::copy_n(in, count, reinterpret_cast<float*>(out));
  }
}

// The table that a term's vectors lie in or are projected from; null for
// sinusoids, which are computed.
const Array* TableOf(const LogitsSpec& spec) {
  if (const auto* term = std::get_if<ShawKeysSpec>(&spec.term)) {
    return &*term->table;
  }
  if (const auto* term = std::get_if<ShawValuesSpec>(&spec.term)) {
    return &*term->table;
  }
  if (const auto* term = std::get_if<AbsoluteKeysSpec>(&spec.term)) {
    return &*term->positions;
  }
  return nullptr;
}

const Array* ProjectionOf(const LogitsSpec& spec) {
  const std::optional<Array>* projection = nullptr;
  if (const auto* term = std::get_if<SinusoidalDistancesSpec>(&spec.term)) {
    projection = &term->projection;
  } else if (const auto* term = std::get_if<AbsoluteKeysSpec>(&spec.term)) {
    projection = &term->projection;
  }
  return projection != nullptr && projection->has_value() ? &**projection
                                                          : nullptr;
}

// Makes vectors, a block of them at a time.
class Maker {
 public:
  Maker(const LogitsPlan& plan, const LogitsResources& resources,
        const Cancellation& cancellation)
      : plan_(plan),
        resources_(resources),
        cancellation_(cancellation),
        table_(TableOf(plan.spec())),
        projection_(ProjectionOf(plan.spec())),
        work_bytes_(SizeOf(plan.work_type())),
        head_dim_(plan.spec().head_dim) {}

  absl::StatusOr<Vectors> Make();

 private:
  absl::StatusOr<Vectors> Copy() const;
  absl::Status MakeBlock(Range vectors, std::byte* out) const;
  void FillSinusoids(const Evaluator& sinusoids, Range vectors,
                     double* out) const;

  const LogitsPlan& plan_;
  const LogitsResources& resources_;
  const Cancellation& cancellation_;
  const Array* const table_;
  const Array* const projection_;
  const int64_t work_bytes_;
  const int64_t head_dim_;
  std::unique_ptr<const Evaluator> sinusoids_;
  // Numbers of a row before and after projection.
  int64_t source_width_ = 0;
  int64_t width_ = 0;
};

absl::StatusOr<Vectors> Maker::Copy() const {
  const auto count = static_cast<int64_t>(table_->values.size());
  ATTNBIAS_ASSIGN_OR_RETURN(BudgetedBuffer memory,
                            resources_.allocate(count * work_bytes_));
  Convert(table_->values.data(), count, plan_.work_type(), memory.bytes.data());
  return Vectors{std::move(memory),
                 plan_.vector_heads() == 1 ? 0 : count / plan_.vector_heads(),
                 head_dim_};
}

absl::StatusOr<Vectors> Maker::Make() {
  if (table_ != nullptr && projection_ == nullptr) return Copy();
  if (plan_.sinusoid() != nullptr) {
    sinusoids_ =
        plan_.sinusoid()->prepare({DataType::kF64}, resources_.kernels);
    source_width_ = plan_.sinusoid()->width;
  } else {
    source_width_ = table_->shape[1];
  }
  width_ = plan_.vector_heads() * head_dim_;
  const int64_t count = plan_.num_vectors();
  ATTNBIAS_ASSIGN_OR_RETURN(BudgetedBuffer memory,
                            resources_.allocate(count * width_ * work_bytes_));
  std::byte* const out = memory.bytes.data();

  const int64_t step = std::clamp<int64_t>(
      kBlockNumbers / std::max(source_width_, width_), 1, kMaxBlockRows);
  Mutex mutex;
  absl::Status status;
  std::atomic<bool> failed{false};
  ParallelFor(
      resources_.executor, (count + step - 1) / step, [&](int64_t block) {
        if (failed) return;
        const Range vectors = {block * step,
                               std::min((block + 1) * step, count)};
        const absl::Status made =
            MakeBlock(vectors, out + vectors.begin * width_ * work_bytes_);
        if (made.ok()) return;
        failed = true;
        const MutexLock lock(mutex);
        status.Update(made);
      });
  ATTNBIAS_RETURN_IF_ERROR(status);
  return Vectors{std::move(memory), projection_ == nullptr ? 0 : head_dim_,
                 width_};
}

absl::Status Maker::MakeBlock(Range vectors, std::byte* out) const {
  if (cancellation_.cancelled()) {
    return absl::CancelledError("nobody waits any more");
  }
  const int64_t rows = vectors.size();
  ATTNBIAS_ASSIGN_OR_RETURN(
      BudgetedBuffer scratch,
      resources_.allocate(rows * (source_width_ + width_) * 8));
  auto* const made = reinterpret_cast<double*>(scratch.bytes.data());
  const double* source = made;
  if (sinusoids_ != nullptr) {
    FillSinusoids(*sinusoids_, vectors, made);
  } else {
    source = table_->values.data() + vectors.begin * source_width_;
  }
  if (projection_ != nullptr) {
    double* const projected = made + rows * source_width_;
    MultiplyTransposed(
        {source, rows, source_width_, source_width_},
        {projection_->values.data(), width_, source_width_, source_width_},
        projected);
    source = projected;
  }
  Convert(source, rows * width_, plan_.work_type(), out);
  return absl::OkStatus();
}

// Vectors ascend by relative position, key - query, while a sinusoid's position
// is query - key: they are filled in reverse and turned round. Where both
// directions share vectors, they ascend by distance as the sinusoid does.
void Maker::FillSinusoids(const Evaluator& sinusoids, Range vectors,
                          double* out) const {
  const int64_t begin = plan_.first() + vectors.begin;
  const int64_t end = plan_.first() + vectors.end;
  const bool symmetric =
      std::get<SinusoidalDistancesSpec>(plan_.spec().term).symmetric;
  const Range distances =
      symmetric ? Range{begin, end} : Range{1 - end, 1 - begin};
  sinusoids.Fill({{0, 1}, distances}, reinterpret_cast<std::byte*>(out), 0);
  if (symmetric) return;
  double* front = out;
  double* back = out + (vectors.size() - 1) * source_width_;
  for (; front < back; front += source_width_, back -= source_width_) {
    std::swap_ranges(front, front + source_width_, back);
  }
}

}  // namespace

absl::StatusOr<Vectors> MakeVectors(const LogitsPlan& plan,
                                    const LogitsResources& resources,
                                    const Cancellation& cancellation) {
  return Maker(plan, resources, cancellation).Make();
}

}  // namespace attnbias
