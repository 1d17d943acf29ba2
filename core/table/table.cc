// SPDX-License-Identifier: Apache-2.0
#include "core/table/table.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/digest.h"
#include "core/base/errors.h"
#include "core/safetensors/safetensors.h"

namespace attnbias {
namespace {

absl::Status CheckSize(DataType data_type, absl::Span<const int64_t> shape, size_t size) {
  if (data_type == DataType::kI32) {
    return Invalid("got data_type I32, want F64, F32, F16 or BF16");
  }
  const std::string lengths = absl::StrJoin(shape, ", ");
  int64_t bytes = SizeOf(data_type);
  bool fits = !shape.empty() && shape.size() <= Table::kMaxAxes;
  for (const int64_t length : shape) {
    fits = fits && length > 0 && !__builtin_mul_overflow(bytes, length, &bytes);
  }
  if (!fits) {
    return Invalid("got shape [", lengths, "], want one to three lengths of at least 1");
  }
  if (bytes == static_cast<int64_t>(size)) return absl::OkStatus();
  return Invalid("got ", size, " bytes of data, want ", bytes, " for shape [", lengths, "] of ",
                 std::string(NameOf(data_type)));
}

absl::Status CheckFinite(const Table& table) {
  for (int64_t row = 0; row < table.rows(); ++row) {
    for (int64_t column = 0; column < table.columns(); ++column) {
      const double value = table.At(row, column);
      if (std::isfinite(value)) continue;
      int64_t index = row * table.columns() + column;
      std::vector<int64_t> place(table.shape().size());
      for (size_t axis = place.size(); axis-- > 0;) {
        place[axis] = index % table.shape()[axis];
        index /= table.shape()[axis];
      }
      return Invalid("got ", value, " at [", absl::StrJoin(place, ", "), "], want finite numbers");
    }
  }
  return absl::OkStatus();
}

std::optional<DataType> DataTypeOf(std::string_view dtype) {
  for (const DataType type : {DataType::kF64, DataType::kF32, DataType::kF16, DataType::kBF16}) {
    if (dtype == NameOf(type)) return type;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<Table> Table::Create(DataType data_type, absl::Span<const int64_t> shape,
                                    std::string_view data, TableLayout layout) {
  auto copy = std::make_shared<const std::string>(data);
  absl::StatusOr<Table> table = View(data_type, shape, *copy, copy);
  return table.ok() ? table->In(layout) : table;
}

absl::StatusOr<Table> Table::View(DataType data_type, absl::Span<const int64_t> shape,
                                  std::string_view data, std::shared_ptr<const void> owner) {
  ATTNBIAS_RETURN_IF_ERROR(CheckSize(data_type, shape, data.size()));
  const int64_t width = SizeOf(data_type);
  auto content = std::make_shared<Content>();
  content->data_type = data_type;
  content->data = std::shared_ptr<const std::byte>(std::move(owner),
                                                   reinterpret_cast<const std::byte*>(data.data()));
  Face& straight = content->straight;
  straight.shape.assign(shape.begin(), shape.end());
  straight.rows = shape[0];
  straight.columns = static_cast<int64_t>(data.size()) / width / shape[0];
  straight.row_stride = straight.columns * width;
  straight.column_stride = width;
  if (shape.size() == 2) {
    Face& transposed = content->transposed;
    transposed.shape = {shape[1], shape[0]};
    transposed.rows = straight.columns;
    transposed.columns = straight.rows;
    transposed.row_stride = straight.column_stride;
    transposed.column_stride = straight.row_stride;
  }
  Table table(std::move(content));
  ATTNBIAS_RETURN_IF_ERROR(CheckFinite(table));
  return table;
}

absl::StatusOr<Table> Table::In(TableLayout layout) const {
  if (layout == TableLayout::kBucketsHeads) return *this;
  if (shape().size() != 2) {
    return Invalid("got layout HEADS_BUCKETS with shape [", absl::StrJoin(shape(), ", "),
                   "], want two lengths");
  }
  Table table(content_);
  if (face_ == &content_->straight) table.face_ = &content_->transposed;
  return table;
}

const std::string& Table::sha256() const {
  std::call_once(face_->hashed, [this] { face_->sha256 = Digest(); });
  return face_->sha256;
}

std::string Table::Digest() const {
  const int64_t width = SizeOf(data_type());
  CanonicalWriter head("attnbias.table", 1);
  // Fields 1 to 4 date from when tables had at most two axes. A third length precedes them, since
  // the bytes must come last.
  if (shape().size() > 2) head.Integer(0, shape()[2]);
  head.Integer(1, static_cast<int64_t>(data_type()));
  head.Integer(2, shape()[0]);
  if (shape().size() > 1) head.Integer(3, shape()[1]);
  // The length that precedes the value of a bytes field.
  head.Integer(4, size() * width);
  Sha256 hash;
  hash.Update(head.bytes());
  const auto* data = reinterpret_cast<const char*>(content_->data.get());
  if (face_ == &content_->straight) {
    hash.Update({data, static_cast<size_t>(size() * width)});
    return hash.Hex();
  }
  std::string row(columns() * width, '\0');
  for (int64_t r = 0; r < rows(); ++r) {
    for (int64_t c = 0; c < columns(); ++c) {
      std::memcpy(&row[c * width], data + r * face_->row_stride + c * face_->column_stride, width);
    }
    hash.Update(row);
  }
  return hash.Hex();
}

bool IsTable(const SafetensorsEntry& entry) {
  return DataTypeOf(entry.dtype).has_value() && !entry.shape.empty() &&
         entry.shape.size() <= Table::kMaxAxes && entry.bytes() > 0;
}

absl::StatusOr<Table> ReadTable(SafetensorsFile& file, const SafetensorsEntry& entry,
                                std::shared_ptr<const void> held) {
  const std::string place = absl::StrCat(file.path(), ":", entry.name);
  if (!IsTable(entry)) {
    return Invalid(place, ": got ", entry.dtype, " [", absl::StrJoin(entry.shape, ", "),
                   "], want F64, F32, F16 or BF16 with one to three axes, none of length 0");
  }
  ATTNBIAS_ASSIGN_OR_RETURN(std::string read, Located(place, file.Read(entry)));
  const auto numbers = std::make_shared<const std::pair<std::string, std::shared_ptr<const void>>>(
      std::move(read), std::move(held));
  return Located(place,
                 Table::View(*DataTypeOf(entry.dtype), entry.shape, numbers->first, numbers));
}

absl::Status CheckNetworkSize(absl::string_view field, const Table& table) {
  if (table.size() <= kMaxNetworkNumbers) return absl::OkStatus();
  return Invalid(field, ": got ", table.size(), " numbers, want at most ", kMaxNetworkNumbers);
}

}  // namespace attnbias
