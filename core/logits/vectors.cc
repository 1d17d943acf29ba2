// SPDX-License-Identifier: Apache-2.0
#include "core/logits/vectors.h"

#include <algorithm>
#include <utility>

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

}  // namespace

absl::StatusOr<Vectors> MakeVectors(const LogitsPlan& plan,
                                    const Summand& summand,
                                    const LogitsResources& resources,
                                    const Cancellation& cancellation) {
  const int64_t head_dim = plan.spec().head_dim;
  const int64_t count = summand.count;
  const int64_t width = summand.encoding->width;
  // A projected row has the vectors of all heads.
  const bool projects = summand.projection.has_value();
  const int64_t lanes = projects ? 1 : summand.heads;
  const int64_t stride = projects ? summand.heads * head_dim : head_dim;
  const int64_t row_bytes = stride * SizeOf(plan.work_type());
  BudgetedBuffer projection;
  if (projects) {
    ATTNBIAS_ASSIGN_OR_RETURN(projection,
                              ReadNumbers(*summand.projection, resources));
  }
  ATTNBIAS_ASSIGN_OR_RETURN(BudgetedBuffer memory,
                            resources.allocate(lanes * count * row_bytes));
  std::byte* const out = memory.bytes.data();
  ATTNBIAS_ASSIGN_OR_RETURN(
      const auto evaluator_memory,
      resources.reserve(summand.encoding->evaluator_bytes));
  const EvaluatorPtr evaluator =
      summand.encoding->prepare({DataType::kF64}, resources.kernels);
  const int64_t step = std::clamp<int64_t>(
      kBlockNumbers / std::max(width, stride), 1, kMaxBlockRows);
  const int64_t blocks = (count + step - 1) / step;
  const auto make = [&](int64_t block) -> absl::Status {
    if (cancellation.cancelled()) {
      return absl::CancelledError("nobody waits any more");
    }
    const int64_t lane = block / blocks;
    const int64_t begin = block % blocks * step;
    const int64_t rows = std::min(step, count - begin);
    ATTNBIAS_ASSIGN_OR_RETURN(BudgetedBuffer scratch,
                              resources.allocate(rows * (width + stride) * 8));
    auto* made = reinterpret_cast<double*>(scratch.bytes.data());
    FillVectors(*evaluator, summand, lane, {begin, begin + rows}, made);
    if (projects) {
      const auto* const numbers =
          reinterpret_cast<const double*>(projection.bytes.data());
      double* const projected = made + rows * width;
      Multiply<double>({made, rows, width, width},
                       {numbers, stride, width, width}, true, projected);
      made = projected;
    }
    Convert(made, rows * stride, plan.work_type(),
            out + (lane * count + begin) * row_bytes);
    return absl::OkStatus();
  };
  ATTNBIAS_RETURN_IF_ERROR(
      TryParallelFor(resources.executor, lanes * blocks, make));
  const int64_t head_stride = lanes > 1  ? count * head_dim
                              : projects ? head_dim
                                         : 0;
  return Vectors{std::move(memory), head_stride, stride};
}

}  // namespace attnbias
