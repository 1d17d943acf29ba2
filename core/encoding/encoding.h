// SPDX-License-Identifier: Apache-2.0
// An encoding: the mathematics that says which number stands at a coordinate.
//
// A coordinate is a position (TABLE), a relative position key - query
// (TOEPLITZ), an anchored key position (KEY_ROW), a pair of a relative row and
// a relative column (BLOCK_TOEPLITZ_2D) or, beside the position of a query,
// that of a key (DENSE). At each coordinate an encoding has `lanes` x `width`
// numbers: heads or a table's parts, and columns. An encoding knows nothing of
// windows, masks, chunks, caches or threads.
//
//   auto alibi = MakeEncoding(AlibiSpec{.num_heads = 8}, Output());
//   auto evaluator = (*alibi)->Prepare(DataType::kF32, kernels);
//   evaluator->Fill({.lanes = {0, 8}, .span = {-4, 5}}, out, 9 * 4);
#ifndef ATTNBIAS_CORE_ENCODING_ENCODING_H_
#define ATTNBIAS_CORE_ENCODING_ENCODING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/base/canonical_writer.h"
#include "core/kernel/kernel_set.h"
#include "core/tensor/data_type.h"
#include "core/tensor/range.h"

namespace attnbias {

// How an encoding's numbers repeat.
enum class Structure : uint8_t {
  kTable,
  kToeplitz,
  kKeyRow,
  kBlockToeplitz2D,
  kDense
};

// Some lanes at some coordinates.
struct Block {
  Range lanes;
  Range span;
  // DENSE only: the query's position.
  int64_t query = 0;
};

// Columns of a table that belong to one axis of position.
struct AxisColumns {
  int64_t axis = 0;
  Range columns;
};

// Tokens in rows and columns. Their coordinates are
// (key row - query row + height - 1) * (2 width - 1)
//     + key column - query column + width - 1.
struct Grid {
  int64_t height = 1;
  int64_t width = 1;

  int64_t tokens() const { return height * width; }
  int64_t block_height() const { return 2 * height - 1; }
  int64_t block_width() const { return 2 * width - 1; }
};

// One of an encoding's own intermediate results.
struct DerivedValue {
  std::string_view name;
  std::vector<double> values;
};

// Computes an encoding's numbers in one element type. Immutable; any number of
// threads may use it at once.
class Evaluator {
 public:
  virtual ~Evaluator() = default;

  // Writes the numbers of `block`, each rounded once to nearest even.
  //
  //   Shape    the block's n-th lane is row-major [span.size(), width] at
  //            out + n * lane_stride_bytes
  //   Range    the span lies in the encoding's domain(), the lanes in its
  //            lanes(), and neither is empty
  //   Result   does not depend on how a range is cut into blocks
  virtual void Fill(const Block& block, std::byte* out,
                    int64_t lane_stride_bytes) const = 0;

  // Roughly how many products a coordinate of all lanes takes beside what
  // writing it does.
  virtual int64_t work_per_coordinate() const { return 1; }

  // Roughly what it keeps beside its encoding, where that can be much.
  virtual int64_t memory_bytes() const { return 0; }

  // Coordinates of a block that takes milliseconds: after those, whoever fills
  // looks whether anybody still wants them. Whole batches of Linear.
  int64_t coordinates_at_once() const {
    constexpr int64_t kWorkAtOnce = int64_t{1} << 22;
    return std::max<int64_t>(kWorkAtOnce / work_per_coordinate() / 64, 1) * 64;
  }
};

// Validated hyperparameters. Cheap to make; what is costly waits for Prepare.
class Encoding {
 public:
  virtual ~Encoding() = default;

  // The field's name in the contract.
  virtual std::string_view name() const = 0;
  virtual Structure structure() const = 0;
  // Heads, 1 where all heads share the numbers; of a TABLE, its parts.
  virtual int64_t lanes() const = 0;
  // Whether lanes are an axis of what is sent.
  virtual bool has_heads() const {
    return structure() != Structure::kTable && !has_indices();
  }
  // TABLE only: what its lanes are called.
  virtual std::vector<std::string_view> part_names() const {
    return {"positions"};
  }
  // Numbers at one coordinate of one lane.
  virtual int64_t width() const = 0;
  // Whether these are an axis of what is sent, the last: of tables, and where
  // vectors stand at pairs.
  virtual bool has_columns() const { return structure() == Structure::kTable; }
  // Coordinates that Fill accepts; others are OUT_OF_RANGE. Of a DENSE one, the
  // positions of queries and of keys.
  virtual Range domain() const = 0;
  // Whether the numbers are indices (I32) rather than reals.
  virtual bool has_indices() const { return false; }
  // KEY_ROW only: whether coordinate 0 is the last key rather than key 0.
  virtual bool anchored_at_last_key() const { return false; }
  // TABLE only: every column's axis, in ascending columns. Each column depends
  // on the position on its own axis alone, and Fill takes one for all.
  virtual std::vector<AxisColumns> axis_columns() const {
    return {{0, {0, width()}}};
  }
  // BLOCK_TOEPLITZ_2D only.
  virtual Grid grid() const { return {}; }
  // Whether position 0 (of pairs) or token 0, before the grid, is a class token
  // whose numbers are no part of the structure. The width is 1 then.
  virtual bool has_border() const { return false; }
  // Writes, row-major [lanes, 3], what the class token gives every key, what
  // every other query gives it, and what it gives itself.
  virtual void WriteBorder(DataType /*type*/, Range /*lanes*/,
                           std::byte* /*out*/) const {}
  // What a header tells beside the numbers.
  virtual std::vector<DerivedValue> derived() const { return {}; }

  // Raised whenever unchanged hyperparameters come to stand for other numbers.
  virtual uint32_t numerics_version() const { return 1; }
  // Writes, beside name() and numerics_version(), everything the numbers depend
  // on but their element type: equal identities give equal numbers.
  virtual void WriteIdentity(CanonicalWriter& writer) const = 0;

  // `type` is kI32 exactly when has_indices(). `kernels` outlives the result,
  // which is independent of this object's lifetime.
  virtual std::unique_ptr<const Evaluator> Prepare(
      DataType type, const KernelSet& kernels) const = 0;
};

using EncodingPtr = std::shared_ptr<const Encoding>;

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_ENCODING_H_
