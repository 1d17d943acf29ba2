// SPDX-License-Identifier: Apache-2.0
// A learned table: an immutable tensor of numbers and its digest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/tensor/data_type.h"

namespace attnbias {

class SafetensorsFile;
struct SafetensorsEntry;

// Order of the axes that bytes come in. Only a table of two axes has a
// kHeadsBuckets, which is the transpose of what the table then is.
enum class TableLayout : uint8_t { kBucketsHeads = 1, kHeadsBuckets };

// One to three axes of F64, F32, F16 or BF16. Copies share the numbers.
class Table {
 public:
  static constexpr size_t kMaxAxes = 3;

  // `data` is row-major, little-endian, of `shape` in the order that `layout`
  // says. INVALID_ARGUMENT, its message without a field prefix, for a type
  // other than the four, a shape that is not one to three positive lengths, a
  // size that does not match, or a number that is not finite.
  static absl::StatusOr<Table> Create(DataType data_type,
                                      absl::Span<const int64_t> shape,
                                      std::string_view data,
                                      TableLayout layout);

  // The same without a copy: `data` stays as it is while `owner` lives.
  static absl::StatusOr<Table> View(DataType data_type,
                                    absl::Span<const int64_t> shape,
                                    std::string_view data,
                                    std::shared_ptr<const void> owner);

  // What this table is when its axes are in the order of `layout`: itself, or
  // its transpose, which shares the numbers. INVALID_ARGUMENT for kHeadsBuckets
  // unless there are two axes.
  absl::StatusOr<Table> In(TableLayout layout) const;

  DataType data_type() const { return content_->data_type; }
  absl::Span<const int64_t> shape() const { return face_->shape; }
  // The first length, and the product of the others: the numbers of a row.
  int64_t rows() const { return face_->rows; }
  int64_t columns() const { return face_->columns; }
  int64_t size() const { return face_->rows * face_->columns; }

  // Exact: every supported type embeds in double.
  double At(int64_t row, int64_t column) const {
    return ReadElement(content_->data_type, content_->data.get() +
                                                row * face_->row_stride +
                                                column * face_->column_stride);
  }
  // By the index in row-major order.
  double At(int64_t index) const {
    return At(index / face_->columns, index % face_->columns);
  }

  // 64 lowercase hex characters: SHA-256 over type, shape and bytes in
  // row-major order, whatever layout they came in. Computed once for all copies
  // when first asked for.
  const std::string& sha256() const;

 private:
  // The bytes as a table in one of the layouts.
  struct Face {
    std::vector<int64_t> shape;
    int64_t rows;
    int64_t columns;
    int64_t row_stride;  // in bytes, as is the next
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

// Whether `entry` is of a type and of axes that a Table may have.
bool IsTable(const SafetensorsEntry& entry);

// INVALID_ARGUMENT, its message beginning with path and name, unless `entry`,
// one of the file's though perhaps with other axes for as many numbers, is a
// table. The table keeps `held` as long as it has the numbers.
absl::StatusOr<Table> ReadTable(SafetensorsFile& file,
                                const SafetensorsEntry& entry,
                                std::shared_ptr<const void> held = nullptr);

}  // namespace attnbias
