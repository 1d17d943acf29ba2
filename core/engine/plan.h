// SPDX-License-Identifier: Apache-2.0
// A validated request. Before anything is computed, it determines every byte that will be sent.
// Only MakePlan creates a Plan, and Engine executes nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnbias/v1/encodings.pb.h"
#include "core/encoding/encoding.h"
#include "core/request/rules.h"
#include "core/tensor/data_type.h"
#include "core/tensor/positions.h"

namespace attnbias {

// One named tensor inside a payload.
struct Part {
  std::string name;
  v1::Form form = v1::FORM_DENSE;
  std::vector<int64_t> shape;
  // Offset from the payload's beginning, and size of the part, in bytes.
  int64_t offset = 0;
  int64_t size_bytes = 0;
};

// The requested window, in the encoding's coordinates.
struct Window {
  Range heads;
  // TABLE only: the positions of the rows on each axis, or one entry if all axes have the same
  // positions. Unless the rows are the tokens of a grid, all axes have the same number of
  // positions.
  std::vector<Positions> axes;
  // Positions that are doubles, if any. `axes` then has one entry: the row indices or, if the lists
  // in `reals` are empty, the range of positions that all axes share.
  RealPositionsPtr reals = nullptr;
  // True if the rows are the tokens of a grid, the last axis varying fastest.
  bool is_grid = false;
  // Absolute positions or grid tokens. Unused by TABLE.
  Positions queries;
  Positions keys;
  // Grids: every n-th token on each axis is a query; empty means 1.
  std::vector<int64_t> query_stride;
  // KEY_ROW: the position that is coordinate 0.
  int64_t key_anchor = 0;

  // TABLE: the number of rows, and a row's position on an axis.
  int64_t rows() const {
    int64_t rows = axes[0].size();
    for (size_t axis = 1; is_grid && axis < axes.size(); ++axis) rows *= axes[axis].size();
    return rows;
  }
  int64_t PositionOf(int64_t row, size_t axis) const {
    if (is_grid) {
      for (size_t later = axes.size() - 1; later > axis; --later) row /= axes[later].size();
      row %= axes[axis].size();
    }
    return axes[axis].At(row);
  }
};

// A mask as one interval and a fill value. Causal masks and sliding windows both mean: key j is
// visible from query i if j - i lies in the interval.
struct ResolvedMask {
  static constexpr Range kAll = {std::numeric_limits<int64_t>::min() / 2,
                                 std::numeric_limits<int64_t>::max() / 2};

  // Visible relative positions; empty if nothing is visible.
  Range visible = kAll;
  // Value of masked elements: the little-endian bytes of one element.
  uint64_t fill_bits = 0;

  bool masks_nothing() const { return visible == kAll; }
};

class Plan {
 public:
  // Not copyable, since its index maps point into its window.
  Plan(Plan&&) = default;

  const std::vector<Part>& parts() const { return parts_; }
  DataType data_type() const { return data_type_; }
  NumberFormat number_format() const { return {data_type_, resolved_spec_.output().scale()}; }
  v1::Form form() const { return form_; }
  int64_t total_bytes() const { return total_bytes_; }
  // 64 lowercase hex characters each; see the contract's TensorHeader.
  const std::string& fingerprint() const { return fingerprint_; }
  const std::string& encoding_fingerprint() const { return encoding_fingerprint_; }
  // The request with the contract's defaults filled in.
  const v1::TensorSpec& resolved_spec() const { return resolved_spec_; }
  // Queries for which every key in the window is masked, counted from the window's first query.
  const std::vector<Range>& fully_masked_rows() const { return fully_masked_rows_; }

  const Encoding& encoding() const { return *encoding_; }
  const Window& window() const { return window_; }
  // The mask, without those bounds that hide nothing in the window.
  const ResolvedMask& mask() const { return mask_; }
  // Every form consists of rows of equal size, possibly followed by a border. Each lane has a row
  // for each query, and each row has an element for each key. The element for query q and key k is
  // the value at coordinate
  //
  //   key_coordinates().At(k) - query_coordinates().At(q)
  //
  // A compact form has one query, and a key for each coordinate. The values of a DENSE encoding
  // also depend on the query's position. A row of a table with several axes has a coordinate on
  // each axis; the maps below hold the coordinate on the first axis or, in a grid, the token's
  // index. A payload by axis has a key for each row of each axis, and its rows differ in size.
  const IndexMap& query_coordinates() const { return query_coordinates_; }
  const IndexMap& key_coordinates() const { return key_coordinates_; }
  int64_t rows() const { return window_.heads.size() * query_coordinates_.size(); }
  bool has_many_axes() const { return window_.axes.size() > 1; }
  // Returns whether each table is sent as one table per axis of a grid: that axis's columns at that
  // axis's positions.
  bool is_by_axis() const { return window_.is_grid && form_ == v1::FORM_TABLE; }
  // Returns each column's axis in a payload by axis; empty for other payloads.
  std::vector<int32_t> ColumnAxes() const;
  // Returns whether a border follows the rows or is part of them.
  bool has_border_part() const { return encoding_->has_border() && form_ != v1::FORM_DENSE; }
  bool has_border_in_rows() const { return encoding_->has_border() && form_ == v1::FORM_DENSE; }
  // Bytes of an element: one value, or all columns of a table row.
  int64_t element_bytes() const { return encoding_->width * SizeOf(data_type_); }
  // Contains every requested coordinate.
  Range hull() const { return hull_; }
  // Returns whether the mask is folded into the values at a coordinate, and therefore into the
  // band. This is not done if there is a border, which would overwrite masked elements.
  bool folds_mask() const {
    return encoding_->structure == Structure::kToeplitz && !encoding_->has_border();
  }

  // The folded mask: as requested, even if it hides nothing in this window, so that all windows
  // share a band.
  const ResolvedMask& band_mask() const { return band_mask_; }

  // Determines the values in a band: encoding, dtype and folded mask.
  const std::string& band_key() const { return band_key_; }

 private:
  friend class Planner;
  Plan() = default;

  EncodingPtr encoding_;
  DataType data_type_ = DataType::kF32;
  v1::Form form_ = v1::FORM_DENSE;
  Window window_;
  IndexMap query_coordinates_;
  IndexMap key_coordinates_;
  Range hull_;
  ResolvedMask mask_;
  ResolvedMask band_mask_;
  std::vector<Part> parts_;
  int64_t total_bytes_ = 0;
  std::string band_key_;
  std::string fingerprint_;
  std::string encoding_fingerprint_;
  v1::TensorSpec resolved_spec_;
  std::vector<Range> fully_masked_rows_;
};

using PlanPtr = std::shared_ptr<const Plan>;

// Turns a request into a Plan, and checks its output. Encodings check their own hyperparameters;
// extent.cc checks extents. `spec` must contain only TableRefs that `tables` holds. Errors begin
// with the field's path inside TensorSpec and ": ".
//
// INVALID_ARGUMENT  a value that is not allowed
// OUT_OF_RANGE      positions for which the encoding has no values
absl::StatusOr<PlanPtr> MakePlan(v1::TensorSpec spec, const Tables& tables,
                                 int64_t max_tensor_bytes);

// Bounds set by the contract.
inline constexpr int64_t kMaxPositionListLength = 262144;
inline constexpr int64_t kMaxGridTokens = 65536;

// Sets the window described by the extent of `spec`. Writes the resolved extent back into `spec`,
// with every default filled in and a list of consecutive positions replaced by its range.
//
// INVALID_ARGUMENT  a value that is not allowed; the message begins with the field's path inside
//                   TensorSpec and ": "
absl::Status ResolveExtent(const Encoding& encoding, v1::TensorSpec& spec, Window& window);

// Rejects positions that the contract allows if the encoding has no values for them. `spec` is the
// request.
//
// OUT_OF_RANGE  the message begins as above
absl::Status CheckDomain(const Plan& plan, const v1::TensorSpec& spec);

// Returns the queries of a whole grid or, without `query_stride`, its tokens. Both include the
// class token if there is one.
Range AllTokens(const Encoding& encoding, const std::vector<int64_t>& query_stride = {});

}  // namespace attnbias
