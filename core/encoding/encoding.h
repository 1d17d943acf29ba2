// SPDX-License-Identifier: Apache-2.0
// An encoding: the mathematics that assigns values to each coordinate.
//
// A coordinate is a position (TABLE), a relative position key - query (TOEPLITZ), an anchored key
// position (KEY_ROW), a displacement in a grid (BLOCK_TOEPLITZ) or a key's position given the
// query's (DENSE). At each coordinate an encoding has `lanes` x `width` values. Lanes are heads or
// a table's parts, and `width` counts columns. An encoding knows nothing about windows, masks,
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
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnbias/v1/encodings.pb.h"
#include "core/kernel/kernel_set.h"
#include "core/request/registration.h"
#include "core/request/rules.h"
#include "core/tensor/data_type.h"
#include "core/tensor/positions.h"

namespace attnbias {

// Bounds, set by the contract, that several encodings share.
inline constexpr int64_t kMaxNumHeads = 65536;
// Maximum number of units in a network's hidden layer.
inline constexpr int64_t kMaxHidden = 65536;
// All differences between two positions that the contract allows.
inline constexpr Range kRelativePositions = {-(int64_t{1} << 42), int64_t{1} << 42};

// How real numbers become elements: each is multiplied by the scale and rounded once. I32 elements
// are indices and have no scale.
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

// Computes an encoding's values in one format. Immutable and thread-safe.
class Evaluator {
 public:
  using Function =
      absl::AnyInvocable<void(const Block& block, std::byte* out, int64_t lane_stride_bytes) const>;

  Evaluator(Function fill, int64_t batch) : fill_(std::move(fill)), batch_(batch) {}

  // Writes the values in `block`, each rounded once to nearest even.
  //
  //   Shape    the block's n-th lane is row-major [span.size(), width] at
  //            out + n * lane_stride_bytes
  //   Range    the span lies in the encoding's domain, the lanes in its lanes,
  //            and neither is empty
  //   Result   does not depend on how a range is split into blocks
  void Fill(const Block& block, std::byte* out, int64_t lane_stride_bytes) const {
    fill_(block, out, lane_stride_bytes);
  }

  // Number of coordinates that take no longer to compute than one. kNonPreemptible if one may take
  // longer than a time slice; Fill then polls ComputeScope.
  int64_t batch() const { return batch_; }

 private:
  const Function fill_;
  const int64_t batch_;
};

using EvaluatorPtr = std::unique_ptr<const Evaluator>;

// `fill` must be thread-safe.
inline EvaluatorPtr MakeEvaluator(Evaluator::Function fill, int64_t batch = 1) {
  return std::make_unique<const Evaluator>(std::move(fill), batch);
}

// How an encoding's values repeat.
enum class Structure : uint8_t { kTable, kToeplitz, kKeyRow, kBlockToeplitz, kDense };

// Columns of a table that belong to one position axis.
struct AxisColumns {
  int64_t axis = 0;
  Range columns;
};

// Tokens on one to three axes, the last of which varies fastest. A pair's coordinate is a
// mixed-radix number: its digit for an axis is key - query + side - 1, and the radix is the block's
// side on that axis.
struct Grid {
  std::vector<int64_t> sides = {};

  int64_t tokens() const { return ProductOf(sides); }
  std::vector<int64_t> block() const {
    std::vector<int64_t> block = sides;
    for (int64_t& side : block) side = 2 * side - 1;
    return block;
  }
  Range coordinates() const { return {0, ProductOf(block())}; }
  // Returns every n-th token of each axis, starting with the first. If `strides` is empty, returns
  // every token.
  Grid EveryNth(const std::vector<int64_t>& strides) const {
    Grid grid = *this;
    for (size_t axis = 0; axis < strides.size(); ++axis) {
      grid.sides[axis] = (sides[axis] - 1) / strides[axis] + 1;
    }
    return grid;
  }

 private:
  static int64_t ProductOf(const std::vector<int64_t>& sides) {
    return std::accumulate(sides.begin(), sides.end(), int64_t{1}, std::multiplies<>());
  }
};

// An intermediate result of the encoding.
struct DerivedValue {
  std::string_view name;
  std::vector<double> values;
};

// Validated hyperparameters and derived values. Cheap to construct; `prepare` does the expensive
// work.
struct Encoding {
  Structure structure = Structure::kTable;
  // Number of heads, or 1 if all heads share the values. For a TABLE, the number of parts.
  int64_t lanes = 1;
  // True if lanes are an axis of the result.
  bool has_heads = false;
  // TABLE only: names of the lanes.
  std::vector<std::string_view> part_names = {"positions"};
  // Number of values at one coordinate of one lane.
  int64_t width = 1;
  // True if these values form the last axis of the result, as for tables and for vectors at pairs.
  bool has_columns = false;
  // Coordinates that Fill accepts; others are OUT_OF_RANGE. If DENSE, the positions of queries and
  // keys.
  Range domain;
  // `has_biases` is true if the encoding has real values, `has_buckets` if it has indices (I32).
  bool has_biases = true;
  bool has_buckets = false;
  // Error for requests for real values if the table is missing or invalid.
  absl::Status bias_status = {};
  // KEY_ROW only: true if coordinate 0 is the last key instead of key 0.
  bool anchored_at_last_key = false;
  // TABLE only: every column's axis, in ascending column order; empty if there is one axis. Each
  // column depends only on the position on its own axis, and Fill uses one position for all axes.
  std::vector<AxisColumns> axis_columns = {};
  // BLOCK_TOEPLITZ only.
  Grid grid = {};
  // Set if position 0 (for pairs) or token 0 (which precedes the grid) is a class token whose
  // values are not part of the structure; the width is then 1. Writes, row-major [lanes, 3], the
  // values from the class token to every key, from every other query to the class token, and from
  // the class token to itself.
  std::function<void(const NumberFormat& format, Range lanes, std::byte* out)> write_border =
      nullptr;
  // Increased whenever unchanged hyperparameters start to produce different values.
  uint32_t numerics_version = 1;
  // If several messages produce the same values, the message whose identity represents all of them.
  // Null means the message itself.
  std::shared_ptr<const google::protobuf::Message> canonical = nullptr;
  // Returns the derived values that a header holds. Null if there are none.
  std::function<std::vector<DerivedValue>()> derive = nullptr;
  // Maximum number of bytes needed, in addition to this object, by `prepare` and then by its
  // evaluator during one Fill; 0 if negligible.
  int64_t evaluator_bytes = 0;
  // `kernels` must outlive the result, which is independent of this object's lifetime. May end
  // early in a ComputeScope whose caller has cancelled. Null for a TABLE whose columns depend on
  // several axes.
  std::function<EvaluatorPtr(const NumberFormat& format, const KernelSet& kernels)> prepare =
      nullptr;
  // TABLE only: prepares rows at lists of positions, which may be doubles. Coordinate n of the
  // result is the n-th position in each axis's list or, if the lists are empty, position n on every
  // axis. Null if positions must be integers.
  std::function<EvaluatorPtr(const NumberFormat& format, const RealPositionsPtr& positions)>
      prepare_reals = nullptr;
  // Offset that each axis adds to a listed position.
  std::vector<double> axis_offsets = {};

  // MakeEncoding sets the following fields.

  // The field's name in the contract.
  std::string_view name = {};
  // True if the request is for indices instead of real values.
  bool has_indices = false;
  // Canonical bytes: equal bytes mean equal values, apart from the element type.
  std::string identity = {};

  // TABLE only.
  int64_t NumAxes() const {
    auto axes = std::max<int64_t>(std::ssize(axis_offsets), 1);
    for (const AxisColumns& run : axis_columns) axes = std::max(axes, run.axis + 1);
    return axes;
  }
  // Returns the number of columns that belong to `axis`, one of several.
  int64_t ColumnsOf(int64_t axis) const {
    int64_t columns = 0;
    for (const AxisColumns& run : axis_columns) {
      if (run.axis == axis) columns += run.columns.size();
    }
    return columns;
  }
  bool has_border() const { return write_border != nullptr; }
  // True if `derive` and `prepare` may be slow.
  bool takes_long_to_prepare() const { return evaluator_bytes > 0; }
};

using EncodingPtr = std::shared_ptr<const Encoding>;

// Checks and completes the request's encoding and output. ResolveExtent does the same for the
// extent.
//
// INVALID_ARGUMENT  a field has an invalid value; the message begins with the field's path inside
//                   TensorSpec and ": "
absl::StatusOr<EncodingPtr> MakeEncoding(const Tables& tables, v1::TensorSpec& spec);

using EncodingRegistration = Registration<Encoding>;

}  // namespace attnbias
