// SPDX-License-Identifier: Apache-2.0
#include "core/table/table.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/canonical_writer.h"
#include "core/base/errors.h"
#include "core/base/sha256.h"
#include "core/safetensors/safetensors.h"

namespace attnbias {
namespace {

absl::Status CheckSize(DataType data_type, absl::Span<const int64_t> shape,
                       size_t size) {
  if (data_type == DataType::kI32) {
    return Invalid("got data_type I32, want F64, F32, F16 or BF16");
  }
  int64_t bytes = SizeOf(data_type);
  bool fits = !shape.empty() && shape.size() <= Table::kMaxAxes;
  for (const int64_t length : shape) {
    fits = fits && length > 0 && !__builtin_mul_overflow(bytes, length, &bytes);
  }
  if (!fits) {
    return Invalid("got shape [", absl::StrJoin(shape, ", "),
                   "], want one to three lengths of at least 1");
  }
  if (bytes != static_cast<int64_t>(size)) {
    return Invalid("got ", size, " bytes of data, want ", bytes, " for shape [",
                   absl::StrJoin(shape, ", "), "] of ",
                   std::string(NameOf(data_type)));
  }
  return absl::OkStatus();
}

// "[3, 1]", where the element stands.
std::string PlaceOf(int64_t index, absl::Span<const int64_t> shape) {
  std::vector<int64_t> place(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    place[axis] = index % shape[axis];
    index /= shape[axis];
  }
  return absl::StrCat("[", absl::StrJoin(place, ", "), "]");
}

absl::Status CheckFinite(DataType data_type, absl::Span<const int64_t> shape,
                         std::string_view data) {
  const int64_t width = SizeOf(data_type);
  const auto count = static_cast<int64_t>(data.size()) / width;
  const auto* bytes = reinterpret_cast<const std::byte*>(data.data());
  for (int64_t i = 0; i < count; ++i) {
    const double value = ReadElement(data_type, bytes + i * width);
    if (!std::isfinite(value)) {
      return Invalid("got ", value, " at ", PlaceOf(i, shape),
                     ", want finite numbers");
    }
  }
  return absl::OkStatus();
}

std::optional<DataType> DataTypeOf(std::string_view dtype) {
  for (const DataType type :
       {DataType::kF64, DataType::kF32, DataType::kF16, DataType::kBF16}) {
    if (dtype == NameOf(type)) return type;
  }
  return std::nullopt;
}

struct HeldNumbers {
  std::string bytes;
  std::shared_ptr<const void> held;
};

absl::StatusOr<Table> Read(SafetensorsFile& file, const SafetensorsEntry& entry,
                           std::shared_ptr<const void> held) {
  if (!IsTable(entry)) {
    return Invalid(
        "got ", entry.dtype, " [", absl::StrJoin(entry.shape, ", "),
        "], want F64, F32, F16 or BF16 with one to three axes, none of "
        "length 0");
  }
  ATTNBIAS_ASSIGN_OR_RETURN(std::string read, file.Read(entry));
  const auto numbers = std::make_shared<const HeldNumbers>(
      HeldNumbers{std::move(read), std::move(held)});
  return Table::View(*DataTypeOf(entry.dtype), entry.shape, numbers->bytes,
                     numbers);
}

}  // namespace

absl::StatusOr<Table> Table::Create(DataType data_type,
                                    absl::Span<const int64_t> shape,
                                    std::string_view data, TableLayout layout) {
  ATTNBIAS_RETURN_IF_ERROR(CheckSize(data_type, shape, data.size()));
  auto copy = std::make_shared<const std::string>(data);
  absl::StatusOr<Table> table = View(data_type, shape, *copy, copy);
  return table.ok() ? table->In(layout) : table;
}

absl::StatusOr<Table> Table::View(DataType data_type,
                                  absl::Span<const int64_t> shape,
                                  std::string_view data,
                                  std::shared_ptr<const void> owner) {
  ATTNBIAS_RETURN_IF_ERROR(CheckSize(data_type, shape, data.size()));
  ATTNBIAS_RETURN_IF_ERROR(CheckFinite(data_type, shape, data));
  const int64_t width = SizeOf(data_type);
  auto content = std::make_shared<Content>();
  content->data_type = data_type;
  content->data = std::shared_ptr<const std::byte>(
      std::move(owner), reinterpret_cast<const std::byte*>(data.data()));
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
  return Table(std::move(content));
}

absl::StatusOr<Table> Table::In(TableLayout layout) const {
  if (layout == TableLayout::kBucketsHeads) return *this;
  if (shape().size() != 2) {
    return Invalid("got layout HEADS_BUCKETS of shape [",
                   absl::StrJoin(shape(), ", "), "], want two lengths");
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
  // Two axes were all there was when the numbers were given out: a third length
  // comes before the others, as the bytes come after them.
  if (shape().size() > 2) head.Integer(0, shape()[2]);
  head.Integer(1, static_cast<int64_t>(data_type()));
  head.Integer(2, shape()[0]);
  if (shape().size() > 1) head.Integer(3, shape()[1]);
  // What precedes the value of a field of bytes.
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
      std::memcpy(&row[c * width],
                  data + r * face_->row_stride + c * face_->column_stride,
                  width);
    }
    hash.Update(row);
  }
  return hash.Hex();
}

bool IsTable(const SafetensorsEntry& entry) {
  return DataTypeOf(entry.dtype).has_value() && !entry.shape.empty() &&
         entry.shape.size() <= Table::kMaxAxes && entry.bytes() > 0;
}

absl::StatusOr<Table> ReadTable(SafetensorsFile& file,
                                const SafetensorsEntry& entry,
                                std::shared_ptr<const void> held) {
  absl::StatusOr<Table> table = Read(file, entry, std::move(held));
  if (table.ok()) return table;
  return Located(absl::StrCat(file.path(), ":", entry.name), table.status());
}

}  // namespace attnbias
