// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/sinusoid/sinusoidal_evaluator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/base/executor.h"
#include "core/encoding/sinusoid/sinusoid.h"
#include "core/numerics/real.h"
#include "core/numerics/rounding.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

// A block's rotations take about 256 KiB, a quarter of a core's private cache.
constexpr int64_t kRotationCount = int64_t{1} << 14;
constexpr int64_t kMinBlockRows = 4;
constexpr int64_t kMaxBlockRows = 256;

// Number of anchors derived from one another before one is recomputed.
constexpr int64_t kAnchorsPerChain = 512;

// Chunk size for copying rows into place; fits in the first-level cache.
constexpr int64_t kPartBytes = int64_t{8} << 10;

// Error of a chain of rotations, relative to a sine's reach (see SetReach) or, for a cosine, to 1.
// A step adds errors of kSinCosBound from its own rotation and 2^-101 from the kernel, and rotates
// the earlier error: kAnchorsPerChain steps add up to 2^-87.3, and a block's steps (at most
// kMaxBlockRows) to 2^-88.3.
constexpr double kChainBound = 0x1p-85;

// Scales outside these bounds would produce many elements outside F16's normal range, which kernels
// do not round well.
constexpr double kMinKernelScale = 0x1p-4;
constexpr double kMaxKernelScale = 0x1p4;

int64_t BlockRowsOf(int64_t pairs) {
  return std::clamp(kRotationCount / std::max<int64_t>(pairs, 1), kMinBlockRows, kMaxBlockRows);
}

// Consecutive rows and their destination.
struct Rows {
  int64_t position;  // position of the first row, including the offset
  int64_t count;
  std::byte* out;
  // Writes elements with stores that bypass the caches.
  bool stream;
  // Writes elements directly to `out` instead of through the workspace.
  bool direct;

  Rows Piece(int64_t first, int64_t most, int64_t row_bytes) const {
    Rows piece = *this;
    piece.position += first;
    piece.count = std::min(most, count - first);
    piece.out += first * row_bytes;
    return piece;
  }
};

// Temporary memory for one Fill.
struct Workspace {
  Workspace(int64_t pairs, int64_t part_rows, int64_t row_bytes)
      : part_rows(part_rows),
        anchor(1, pairs),
        scaled_anchor(1, pairs),
        rotated(1, pairs),
        reach(pairs),
        sin_bound(pairs),
        undecided(new uint32_t[2 * part_rows * pairs]),
        doubles(part_rows * row_bytes / sizeof(double) + 2 * kPairMultiple) {}

  std::byte* part() { return reinterpret_cast<std::byte*>(doubles.data()); }

  const int64_t part_rows;
  RotorRows anchor;
  // The anchor times the scale; upper halves only.
  RotorRows scaled_anchor;
  RotorRows rotated;
  AlignedDoubles reach;
  AlignedDoubles sin_bound;
  // Not initialized, since little of it is used.
  std::unique_ptr<uint32_t[]> undecided;
  // The elements of part_rows rows, plus room for a kernel's overrun.
  AlignedDoubles doubles;
};

class SinusoidalEvaluator {
 public:
  SinusoidalEvaluator(SinusoidRows rows, DataType type, const KernelSet& kernels)
      : described_(std::move(rows)),
        columns_(described_.columns),
        frequencies_(described_.frequencies),
        rounding_(described_.scale, type),
        type_(type),
        row_bytes_(columns_.width * SizeOf(type)),
        kernels_(kernels),
        pairs_(PaddedPairs(columns_.sines)),
        block_rows_(BlockRowsOf(pairs_)),
        rotations_(block_rows_ + 1, pairs_) {
    SetAngles(frequencies_, 0, pairs_, rotations_.Row(0));
    SetAngles(frequencies_, 1, pairs_, rotations_.Row(1));
    // The rotation from one anchor to the next is computed from its own angle, not from other
    // rotations, since kChainBound counts one error per step.
    SetAngles(frequencies_, block_rows_, pairs_, rotations_.Row(block_rows_));
    for (int64_t row = 2; row < block_rows_ && ComputeScope::Continues(); ++row) {
      kernels_.rotate(AsConst(rotations_.Row(row - 1)), AsConst(rotations_.Row(1)),
                      rotations_.Row(row), pairs_);
    }
  }

  void Fill(Range positions, std::byte* out) const {
    const int64_t rows = positions.size();
    Rows all = {.position = positions.begin + described_.whole,
                .count = rows,
                .out = out,
                .stream = rows * row_bytes_ >= kStreamingBytes,
                .direct = false};
    all.direct = CanFillDirectly(all);
    const int64_t part_rows =
        all.direct ? block_rows_ : std::clamp<int64_t>(kPartBytes / row_bytes_, 1, block_rows_);
    Workspace work(pairs_, std::min(part_rows, rows), row_bytes_);
    const int64_t chain_rows = kAnchorsPerChain * block_rows_;
    for (int64_t row = 0; row < rows; row += chain_rows) {
      FillChain(all.Piece(row, chain_rows, row_bytes_), work);
    }
    if (all.stream) kernels_.end_streaming();
  }

 private:
  void SetAnchor(int64_t position, const Rotors& anchor) const {
    SetAngles(frequencies_, position, pairs_, anchor, described_.rest);
    // Sets padding to an angle whose sine and cosine pass every rounding test.
    for (auto i = static_cast<int64_t>(frequencies_.size()); i < pairs_; ++i) {
      anchor.sin_hi[i] = 0.6;
      anchor.cos_hi[i] = 0.8;
    }
  }

  // Returns true if a kernel rounds the elements: types below F64 with a moderate scale.
  bool HasKernel() const {
    const double factor = std::fabs(rounding_.factor().hi);
    return type_ != DataType::kF64 && factor > kMinKernelScale && factor < kMaxKernelScale;
  }

  // Returns true if kernels may write directly to `rows.out`. Padding would overrun it, and
  // bypassing the caches pays off only for whole cache lines.
  bool CanFillDirectly(const Rows& rows) const {
    constexpr int64_t kLine = 64;
    if (!HasKernel() || columns_.width != 2 * pairs_) return false;
    if (!rows.stream) return true;
    return columns_.pair_stride == 2 && row_bytes_ % kLine == 0 &&
           reinterpret_cast<uintptr_t>(rows.out) % kLine == 0;
  }

  // Fills blocks, each of which rotates the anchor of the one before.
  void FillChain(const Rows& chain, Workspace& work) const {
    const Rotors anchor = work.anchor.Row(0);
    SetAnchor(chain.position, anchor);
    SetReach(chain, work);
    for (int64_t row = 0; row < chain.count; row += block_rows_) {
      if (row != 0) {
        kernels_.rotate(AsConst(anchor), rotations_.Row(block_rows_), anchor, pairs_);
      }
      FillBlock(chain.Piece(row, block_rows_, row_bytes_), work);
    }
  }

  // Sets bounds on the sines' magnitudes over the chain: 1, or the largest angle if that is
  // smaller. Errors are proportional to these bounds, so that frequencies too low for a full
  // rotation keep their relative accuracy.
  void SetReach(const Rows& chain, Workspace& work) const {
    const double farthest = static_cast<double>(
        std::max(std::abs(chain.position), std::abs(chain.position + chain.count)) + block_rows_);
    for (size_t i = 0; i < frequencies_.size(); ++i) {
      work.reach[i] = std::min(1.0, farthest * frequencies_[i].radians_per_position);
    }
  }

  void FillBlock(const Rows& block, Workspace& work) const {
    if (HasKernel()) SetScaledAnchor(work);
    for (int64_t row = 0; row < block.count; row += work.part_rows) {
      FillPart(block.Piece(row, work.part_rows, row_bytes_), row, work);
    }
  }

  void SetScaledAnchor(Workspace& work) const {
    const Rotors anchor = work.anchor.Row(0);
    const Rotors scaled = work.scaled_anchor.Row(0);
    const double factor = std::fabs(rounding_.factor().hi);
    const double turn = static_cast<double>(block_rows_);
    for (size_t i = 0; i < frequencies_.size(); ++i) {
      const double rotation = turn * frequencies_[i].radians_per_position;
      const double bound =
          kRotationBound * (std::fabs(anchor.sin_hi[i]) + rotation) + kChainBound * work.reach[i];
      work.sin_bound[i] = factor * std::min(kRotationBound, bound);
    }
    std::copy_n(anchor.sin_hi, pairs_, scaled.sin_hi);
    std::copy_n(anchor.cos_hi, pairs_, scaled.cos_hi);
    if (rounding_.is_unscaled()) return;
    for (size_t i = 0; i < frequencies_.size(); ++i) {
      const DoubleDouble sine = {anchor.sin_hi[i], anchor.sin_lo[i]};
      const DoubleDouble cosine = {anchor.cos_hi[i], anchor.cos_lo[i]};
      scaled.sin_hi[i] = (sine * rounding_.factor()).hi;
      scaled.cos_hi[i] = (cosine * rounding_.factor()).hi;
    }
  }

  void FillPart(const Rows& part, int64_t rotation, Workspace& work) const {
    if (!HasKernel()) {
      RotateInDoubleDoubles(part, rotation, work);
    } else {
      RotateInDoubles(part, rotation, work);
    }
    if (part.direct) return;
    const int64_t size = part.count * row_bytes_;
    if (part.stream) {
      kernels_.stream(work.part(), part.out, size);
    } else {
      std::memcpy(part.out, work.part(), size);
    }
  }

  void RotateInDoubles(const Rows& part, int64_t rotation, Workspace& work) const {
    const ConstRotors anchor = AsConst(work.scaled_anchor.Row(0));
    std::byte* out = part.direct ? part.out : work.part();
    const ConstRotors rotations = rotations_.Row(rotation);
    const SinusoidBlock block = {.anchor_sin = anchor.sin_hi,
                                 .anchor_cos = anchor.cos_hi,
                                 .rotation_sin = rotations.sin_hi,
                                 .rotation_cos = rotations.cos_hi,
                                 .sin_bound = work.sin_bound.data(),
                                 .cos_bound = kRotationBound * std::fabs(rounding_.factor().hi),
                                 .rows = part.count,
                                 .pairs = pairs_,
                                 .sines = columns_.sines,
                                 .cosines = columns_.cosines,
                                 .width = columns_.width,
                                 .pair_stride = columns_.pair_stride,
                                 .cos_offset = columns_.cos_offset,
                                 .stream = part.stream && part.direct};
    const int64_t undecided = RunKernel(block, out, work.undecided.get());
    for (int64_t i = 0; i < undecided; ++i) {
      const int64_t at = work.undecided[i];
      Resolve(part.position + at / columns_.width, at % columns_.width, out + at * SizeOf(type_));
    }
  }

  int64_t RunKernel(const SinusoidBlock& block, std::byte* out, uint32_t* undecided) const {
    if (type_ == DataType::kF32) {
      return kernels_.fill_sinusoid_f32(block, reinterpret_cast<float*>(out), undecided);
    }
    auto* elements = reinterpret_cast<uint16_t*>(out);
    return type_ == DataType::kBF16 ? kernels_.fill_sinusoid_bf16(block, elements, undecided)
                                    : kernels_.fill_sinusoid_f16(block, elements, undecided);
  }

  void RotateInDoubleDoubles(const Rows& part, int64_t rotation, Workspace& work) const {
    for (int64_t row = 0; row < part.count; ++row) {
      kernels_.rotate(AsConst(work.anchor.Row(0)), rotations_.Row(rotation + row),
                      work.rotated.Row(0), pairs_);
      RoundRow(part.position + row, work, work.part() + row * row_bytes_);
    }
  }

  void RoundRow(int64_t position, Workspace& work, std::byte* row) const {
    const Rotors value = work.rotated.Row(0);
    const auto write = [&](int64_t column, DoubleDouble exact, double error) {
      std::byte* out = row + column * SizeOf(type_);
      if (!rounding_.TryRound(exact, error, out)) Resolve(position, column, out);
    };
    for (int64_t i = 0; i < columns_.sines; ++i) {
      write(i * columns_.pair_stride, {value.sin_hi[i], value.sin_lo[i]},
            kChainBound * work.reach[i]);
    }
    for (int64_t i = 0; i < columns_.cosines; ++i) {
      write(columns_.cos_offset + i * columns_.pair_stride, {value.cos_hi[i], value.cos_lo[i]},
            kChainBound);
    }
  }

  void Resolve(int64_t position, int64_t column, std::byte* out) const {
    using Kind = SinusoidColumns::Kind;
    const SinusoidColumns::Wave wave = columns_.WaveAt(column);
    if (position != 0 || described_.rest != 0) {
      const SinCos both =
          SinCosOf(AngleAt(frequencies_[wave.frequency], position, described_.rest));
      const DoubleDouble value = wave.kind == Kind::kSine ? both.sin : both.cos;
      if (rounding_.TryRoundRelative(value, both.error, out)) return;
    }
    described_.reference({position - described_.whole}, column, type_, out);
  }

  const SinusoidRows described_;
  const SinusoidColumns& columns_;
  const std::vector<SinusoidFrequency>& frequencies_;
  const ScaledRounding rounding_;
  const DataType type_;
  const int64_t row_bytes_;
  const KernelSet& kernels_;
  const int64_t pairs_;
  const int64_t block_rows_;
  // Rotations by 0, 1, ..., block_rows_ positions.
  RotorRows rotations_;
};

// Size of the pieces in which the rows of several axes are joined; fits in a core's private cache.
constexpr int64_t kJoinedPieceBytes = int64_t{128} << 10;

// Returns true if two axes have the same values at the same position.
bool HaveSameTable(const SinusoidAxis& a, const SinusoidAxis& b) {
  return a.ladder == b.ladder && a.first_frequency == b.first_frequency && a.stretch == b.stretch &&
         a.columns.sines == b.columns.sines && a.columns.cosines == b.columns.cosines;
}

// Returns the rows of an axis, which other axes may share.
using MakeRows =
    absl::FunctionRef<EvaluatorPtr(const SinusoidAxis& axis, const SinusoidColumns& columns)>;

// Joins the axes' rows with the elements for frequencies that do not rotate.
EvaluatorPtr JoinAxes(const std::vector<SinusoidAxis>& axes, const NumberFormat& format,
                      bool may_share, MakeRows make_rows) {
  std::vector<std::byte> resting(axes.front().columns.width * SizeOf(format.type));
  std::vector<const SinusoidAxis*> made;
  std::vector<RowPart> parts;
  for (const SinusoidAxis& axis : axes) {
    // Cosines of rotating frequencies are overwritten later.
    const SinusoidColumns& own = axis.columns;
    for (int64_t i = 0; i < own.cosines; ++i) {
      const int64_t column = own.cos_offset + i * own.pair_stride;
      RoundDouble(format.scale, format.type, resting.data() + column * SizeOf(format.type));
    }
    const std::vector<int64_t> rotating = axis.Rotating();
    if (rotating.empty()) continue;
    const bool has_last_cosine = rotating.back() < own.cosines;
    const SinusoidColumns columns(
        2 * std::ssize(rotating) - (has_last_cosine ? 0 : 1),
        own.pair_stride == 2 ? v1::COLUMNS_INTERLEAVED : v1::COLUMNS_SINES_COSINES);
    std::vector<int64_t> places(columns.width);
    for (int64_t i = 0; i < columns.sines; ++i) {
      const int64_t from = i * columns.pair_stride;
      const int64_t to = rotating[i] * own.pair_stride;
      places[columns.sin_offset + from] = own.sin_offset + to;
      if (i < columns.cosines) {
        places[columns.cos_offset + from] = own.cos_offset + to;
      }
    }
    const auto same = std::ranges::find_if(
        made, [&](const auto* other) { return may_share && HaveSameTable(axis, *other); });
    const auto part = static_cast<size_t>(same - made.begin());
    if (same == made.end()) {
      made.push_back(&axis);
      parts.push_back({make_rows(axis, columns), columns.width});
    }
    parts[part].PutAt(places);
  }
  return JoinRows(std::move(parts), std::move(resting), format.type);
}

}  // namespace

int64_t SinusoidsBytes(int64_t frequencies) {
  // Per pair and row: a rotation and, in a workspace, two elements that kernels round, at most as
  // wide as floats, with their indices.
  constexpr int64_t kRotationBytes = 4 * sizeof(double) + 2 * (sizeof(float) + sizeof(uint32_t));
  // Per pair: the frequency, three anchors, the reach and the bound.
  constexpr int64_t kFrequencyBytes = sizeof(SinusoidFrequency) + (3 * 4 + 2) * sizeof(double);
  const int64_t pairs = PaddedPairs(frequencies);
  return pairs * ((BlockRowsOf(pairs) + 1) * kRotationBytes + kFrequencyBytes) + kPartBytes;
}

EvaluatorPtr PrepareSinusoids(SinusoidRows rows, DataType type, const KernelSet& kernels) {
  return MakeEvaluator(
      [evaluator = std::make_unique<const SinusoidalEvaluator>(std::move(rows), type, kernels)](
          const Block& block, std::byte* out, int64_t /*lane_stride_bytes*/) {
        evaluator->Fill(block.span, out);
      });
}

int64_t SinusoidsBytes(const std::vector<SinusoidAxis>& axes) {
  // Per frequency: its index in the list of rotating frequencies, its columns, and its runs,
  // including the memory for growing the list of runs.
  constexpr int64_t kPairBytes = int64_t{15 * sizeof(int64_t)};
  int64_t bytes = JoinedBytes(axes.front().columns.width);
  for (const SinusoidAxis& axis : axes) {
    bytes += SinusoidsBytes(axis.columns.sines) + axis.columns.sines * kPairBytes;
  }
  return bytes;
}

EvaluatorPtr PrepareSinusoids(const std::vector<SinusoidAxis>& axes, const NumberFormat& format,
                              const KernelSet& kernels) {
  const auto rows_of = [&](const SinusoidAxis& axis, const SinusoidColumns& columns) {
    return PrepareSinusoids(RowsOf(axis, columns, format.scale), format.type, kernels);
  };
  return JoinAxes(axes, format, /*may_share=*/true, rows_of);
}

EvaluatorPtr PrepareSinusoidsAt(const RealPositionsPtr& positions,
                                const std::vector<SinusoidAxis>& axes, const NumberFormat& format) {
  const auto rows_of = [&](const SinusoidAxis& axis, const SinusoidColumns& columns) {
    SinusoidAxis without_offset = axis;
    without_offset.stretch.offset = 0;
    return PrepareListed(RowsOf(without_offset, columns, format.scale),
                         {positions, static_cast<size_t>(&axis - axes.data()), axis.stretch.offset},
                         format.type);
  };
  return JoinAxes(axes, format, /*may_share=*/false, rows_of);
}

int64_t JoinedBytes(int64_t width) {
  // A row in which nothing rotates, and a piece of at least one row.
  return kJoinedPieceBytes + 2 * width * int64_t{sizeof(double)};
}

void RowPart::PutAt(absl::Span<const int64_t> columns) {
  for (int64_t from = 0; from < std::ssize(columns); ++from) {
    if (from == 0 || columns[from] != columns[from - 1] + 1) {
      runs.push_back({from, columns[from], 0});
    }
    ++runs.back().columns;
  }
}

EvaluatorPtr JoinRows(std::vector<RowPart> parts, std::vector<std::byte> resting, DataType type) {
  if (parts.size() == 1 && parts[0].runs.size() == 1 &&
      parts[0].runs[0].columns * SizeOf(type) == std::ssize(resting)) {
    return std::move(parts[0].rows);
  }
  return MakeEvaluator(
      [parts = std::move(parts), resting = std::move(resting), bytes = SizeOf(type)](
          const Block& block, std::byte* out, int64_t /*lane_stride_bytes*/) {
        const auto row_bytes = static_cast<int64_t>(resting.size());
        const int64_t most = std::max<int64_t>(kJoinedPieceBytes / row_bytes, 1);
        std::vector<std::byte> piece(std::min(most, block.span.size()) * row_bytes);
        for (int64_t first = block.span.begin; first < block.span.end;) {
          const int64_t end = std::min(first + most, block.span.end);
          for (int64_t row = 0; row < end - first; ++row) {
            std::memcpy(out + row * row_bytes, resting.data(), row_bytes);
          }
          for (const RowPart& part : parts) {
            part.rows->Fill({{0, 1}, {first, end}}, piece.data(), 0);
            const std::byte* from = piece.data();
            std::byte* to = out;
            for (int64_t row = first; row < end; ++row) {
              for (const RowPart::Run& run : part.runs) {
                std::memcpy(to + run.to * bytes, from + run.from * bytes, run.columns * bytes);
              }
              from += part.width * bytes;
              to += row_bytes;
            }
          }
          out += (end - first) * row_bytes;
          first = end;
        }
      });
}

}  // namespace attnbias
