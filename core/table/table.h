// SPDX-License-Identifier: Apache-2.0
// A learned table: an immutable tensor and its digest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/tensor/data_type.h"

namespace attnbias {

class SafetensorsFile;
struct SafetensorsEntry;

// Order of the axes in the data. kHeadsBuckets is the transpose of a table with two axes.
enum class TableLayout : uint8_t { kBucketsHeads = 1, kHeadsBuckets };

// A tensor of F64, F32, F16 or BF16 with one to three axes. Copies share the values.
class Table {
 public:
  static constexpr size_t kMaxAxes = 3;

  // Copies `data`, which is row-major and little-endian, with shape `shape` and its axes in the
  // order of `layout`. Returns INVALID_ARGUMENT, without a field prefix in its message, for a type
  // other than the four, a shape that is not one to three positive lengths, a size that does not
  // match, or a value that is not finite.
  static absl::StatusOr<Table> Create(DataType data_type, absl::Span<const int64_t> shape,
                                      std::string_view data, TableLayout layout);

  // Same as Create, but without a copy: `data` must not change while `owner` lives.
  static absl::StatusOr<Table> View(DataType data_type, absl::Span<const int64_t> shape,
                                    std::string_view data, std::shared_ptr<const void> owner);

  // Interprets the axes of this table according to `layout`, and returns the table in kBucketsHeads
  // order: itself, or its transpose, which shares the values. Returns INVALID_ARGUMENT for
  // kHeadsBuckets unless there are two axes.
  absl::StatusOr<Table> In(TableLayout layout) const;

  DataType data_type() const { return content_->data_type; }
  absl::Span<const int64_t> shape() const { return face_->shape; }
  // The first length, and the product of the others, which is the number of values in a row.
  int64_t rows() const { return face_->rows; }
  int64_t columns() const { return face_->columns; }
  int64_t size() const { return face_->rows * face_->columns; }

  // Exact: every supported type fits in a double.
  double At(int64_t row, int64_t column) const {
    return ReadElement(content_->data_type, content_->data.get() + row * face_->row_stride +
                                                column * face_->column_stride);
  }
  double At(int64_t index) const { return At(index / face_->columns, index % face_->columns); }

  // Returns 64 lowercase hex characters: the SHA-256 of the type, the shape and the bytes in
  // row-major order, regardless of the layout in which the bytes were received. Computed once for
  // all copies, on the first call.
  const std::string& sha256() const;

 private:
  // The bytes as a table in one of the layouts.
  struct Face {
    std::vector<int64_t> shape;
    int64_t rows;
    int64_t columns;
    int64_t row_stride;  // in bytes, like column_stride
    int64_t column_stride;
    mutable std::once_flag hashed;
    mutable std::string sha256;
  };
  struct Content {
    DataType data_type;
    std::shared_ptr<const std::byte> data;
    Face straight;
    Face transposed;  // empty unless there are two axes
  };

  explicit Table(std::shared_ptr<const Content> content)
      : content_(std::move(content)), face_(&content_->straight) {}

  std::string Digest() const;

  std::shared_ptr<const Content> content_;
  const Face* face_;
};

// Returns whether `entry` has a type and axes that a Table supports.
bool IsTable(const SafetensorsEntry& entry);

// Reads `entry` from the file. The shape in `entry` may differ from the one in the file if the
// number of elements is the same. The table keeps `held` alive as long as its values live. Returns
// INVALID_ARGUMENT, with a message that begins with the path and name, unless the entry is a table.
absl::StatusOr<Table> ReadTable(SafetensorsFile& file, const SafetensorsEntry& entry,
                                std::shared_ptr<const void> held = nullptr);

// Checks that `table` does not exceed the maximum number of values for computation in doubles.
inline constexpr int64_t kMaxNetworkNumbers = int64_t{1} << 22;
absl::Status CheckNetworkSize(absl::string_view field, const Table& table);

}  // namespace attnbias
