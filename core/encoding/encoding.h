// SPDX-License-Identifier: Apache-2.0
// An encoding: the mathematics that says which number stands at a coordinate.
//
// A coordinate is a position (TABLE), a relative position key - query
// (TOEPLITZ), an anchored key position (KEY_ROW), a displacement in a grid
// (BLOCK_TOEPLITZ) or, beside the position of a query, that of a key (DENSE).
// At each coordinate an encoding has `lanes` x `width` numbers: heads or a
// table's parts, and columns. An encoding knows nothing of windows, masks,
// chunks, caches or threads.
//
//   spec.mutable_alibi()->set_num_heads(8);
//   auto alibi = MakeEncoding(tables, spec);
//   auto evaluator = (*alibi)->prepare({DataType::kF32}, kernels);
//   evaluator->Fill({.lanes = {0, 8}, .span = {-4, 5}}, out, 9 * 4);
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "core/kernel/kernel_set.h"
#include "core/tensor/data_type.h"
#include "core/tensor/positions.h"
#include "core/tensor/range.h"

namespace google::protobuf {
class Message;
}  // namespace google::protobuf

namespace attnbias {

// Bounds of the contract that several encodings share.
inline constexpr int64_t kMaxNumHeads = 65536;
// Numbers in a table whose values are computed with as doubles.
inline constexpr int64_t kMaxNetworkNumbers = int64_t{1} << 22;
// Units of a network's hidden layer.
inline constexpr int64_t kMaxHidden = 65536;
// Every difference of two positions that the contract allows.
inline constexpr Range kRelativePositions = {-(int64_t{1} << 42),
                                             int64_t{1} << 42};

// How real numbers become elements: each is multiplied by the scale and rounded
// once. I32 has no scale; its elements are indices in place of numbers.
struct NumberFormat {
  DataType type = DataType::kF32;
  double scale = 1;
};

// Some lanes at some coordinates.
struct Block {
  Range lanes;
  Range span;
  // DENSE only: the query's position.
  int64_t query = 0;
};

// Computes an encoding's numbers in one format. Immutable; any number of
// threads may use it at once.
class Evaluator {
 public:
  virtual ~Evaluator() = default;

  // Writes the numbers of `block`, each rounded once to nearest even.
  //
  //   Shape    the block's n-th lane is row-major [span.size(), width] at
  //            out + n * lane_stride_bytes
  //   Range    the span lies in the encoding's domain, the lanes in its lanes,
  //            and neither is empty
  //   Result   does not depend on how a range is cut into blocks
  virtual void Fill(const Block& block, std::byte* out,
                    int64_t lane_stride_bytes) const = 0;

  // This many coordinates take no longer than one. kNonPreemptible if one may
  // take longer than a time slice; Fill then polls MakingScope.
  virtual int64_t batch() const { return 1; }
};

using EvaluatorPtr = std::unique_ptr<const Evaluator>;

// How an encoding's numbers repeat.
enum class Structure : uint8_t {
  kTable,
  kToeplitz,
  kKeyRow,
  kBlockToeplitz,
  kDense
};

// Columns of a table that belong to one axis of position.
struct AxisColumns {
  int64_t axis = 0;
  Range columns;
};

// Tokens on one to three axes, of which the last moves fastest. The coordinate
// of a pair has the digit key - query + side - 1 for each axis, in the base of
// that axis's side of the block.
struct Grid {
  std::vector<int64_t> sides = {};

  int64_t tokens() const { return ProductOf(sides); }
  std::vector<int64_t> block() const {
    std::vector<int64_t> block = sides;
    for (int64_t& side : block) side = 2 * side - 1;
    return block;
  }
  Range coordinates() const { return {0, ProductOf(block())}; }
  // Every n-th token of each axis, from the first on. No `strides` are ones.
  Grid EveryNth(const std::vector<int64_t>& strides) const {
    Grid grid = *this;
    for (size_t axis = 0; axis < strides.size(); ++axis) {
      grid.sides[axis] = (sides[axis] - 1) / strides[axis] + 1;
    }
    return grid;
  }

 private:
  static int64_t ProductOf(const std::vector<int64_t>& sides) {
    return std::accumulate(sides.begin(), sides.end(), int64_t{1},
                           std::multiplies<>());
  }
};

// One of an encoding's own intermediate results.
struct DerivedValue {
  std::string_view name;
  std::vector<double> values;
};

// Validated hyperparameters, and what follows from them. Cheap to make; what is
// costly waits for `prepare`.
struct Encoding {
  Structure structure = Structure::kTable;
  // Heads, 1 where all heads share the numbers; of a TABLE, its parts.
  int64_t lanes = 1;
  // Whether lanes are an axis of what is sent.
  bool has_heads = false;
  // TABLE only: what its lanes are called.
  std::vector<std::string_view> part_names = {"positions"};
  // Numbers at one coordinate of one lane.
  int64_t width = 1;
  // Whether these are an axis of what is sent, the last: of tables, and where
  // vectors stand at pairs.
  bool has_columns = false;
  // Coordinates that Fill accepts; others are OUT_OF_RANGE. Of a DENSE one, the
  // positions of queries and of keys.
  Range domain;
  // Which values it has: reals, and indices (I32).
  bool has_biases = true;
  bool has_buckets = false;
  // Why biases cannot be had though there are some: of the table they need.
  absl::Status bias_status = {};
  // KEY_ROW only: whether coordinate 0 is the last key rather than key 0.
  bool anchored_at_last_key = false;
  // TABLE only: every column's axis, in ascending columns; none where there is
  // one axis. Each column depends on the position on its own axis alone, and
  // Fill takes one for all.
  std::vector<AxisColumns> axis_columns = {};
  // BLOCK_TOEPLITZ only.
  Grid grid = {};
  // Where position 0 (of pairs) or token 0, before the grid, is a class token
  // whose numbers are not a part of the structure: writes, row-major
  // [lanes, 3], what it gives every key, what every other query gives it, and
  // what it gives itself. The width is 1 then.
  std::function<void(const NumberFormat& format, Range lanes, std::byte* out)>
      write_border = nullptr;
  // Raised whenever unchanged hyperparameters come to stand for other numbers.
  uint32_t numerics_version = 1;
  // The message whose identity stands for this one's, where several messages
  // have the same numbers; null for the message's own.
  std::shared_ptr<const google::protobuf::Message> canonical = nullptr;
  // What a header tells beside the numbers, if anything.
  std::function<std::vector<DerivedValue>()> derive = nullptr;
  // Bounds the bytes that `prepare`, then its evaluator with one Fill under way
  // take beside this object; 0 where that is little. An accelerator's part is
  // not among them.
  int64_t evaluator_bytes = 0;
  // `kernels` outlives the result, which is independent of this object's
  // lifetime. May end early in a MakingScope whose caller wants no more; what
  // others share may not. Null of a TABLE whose columns depend on several axes.
  std::function<EvaluatorPtr(const NumberFormat& format,
                             const KernelSet& kernels)>
      prepare = nullptr;
  // TABLE only: prepares rows at lists of positions, which may be doubles.
  // Coordinate n of the result stands for the n-th position of every axis, or
  // for position n where the lists are empty. Null where positions are
  // integers.
  std::function<EvaluatorPtr(const NumberFormat& format,
                             const RealPositionsPtr& positions)>
      prepare_reals = nullptr;
  // What each axis adds to such a position.
  std::vector<double> axis_offsets = {};

  // What follows is MakeEncoding's to set.

  // The field's name in the contract.
  std::string_view name = {};
  // Whether the numbers asked for are indices rather than reals.
  bool has_indices = false;
  // Canonical bytes: equal ones name equal numbers, but for their element type.
  std::string identity = {};

  // TABLE only.
  int64_t NumAxes() const {
    auto axes = std::max<int64_t>(std::ssize(axis_offsets), 1);
    for (const AxisColumns& run : axis_columns) {
      axes = std::max(axes, run.axis + 1);
    }
    return axes;
  }
  // Columns of one of several axes.
  int64_t ColumnsOf(int64_t axis) const {
    int64_t columns = 0;
    for (const AxisColumns& run : axis_columns) {
      if (run.axis == axis) columns += run.columns.size();
    }
    return columns;
  }
  bool has_border() const { return write_border != nullptr; }
  // Whether `derive` and `prepare` may take more than a moment.
  bool takes_long_to_prepare() const { return evaluator_bytes > 0; }
};

using EncodingPtr = std::shared_ptr<const Encoding>;

// An Encoding's `prepare` that makes one kind of evaluator from these parts,
// the format and, where it takes them, the kernels.
template <typename SomeEvaluator, typename... Parts>
auto PrepareFrom(const Parts&... parts) {
  return [=](const NumberFormat& format,
             const KernelSet& kernels) -> EvaluatorPtr {
    if constexpr (std::is_constructible_v<SomeEvaluator, const Parts&...,
                                          const NumberFormat&,
                                          const KernelSet&>) {
      return std::make_unique<SomeEvaluator>(parts..., format, kernels);
    } else {
      return std::make_unique<SomeEvaluator>(parts..., format);
    }
  };
}

}  // namespace attnbias
