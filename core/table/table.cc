// SPDX-License-Identifier: Apache-2.0
#include "core/table/table.h"

#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/sha256.h"
#include "core/encoding/canonical_writer.h"
#include "core/numerics/rounding.h"
#include "core/tensor/element.h"

namespace attnbias {
namespace {

absl::Status CheckShape(DataType data_type, absl::Span<const int64_t> shape,
                        std::string_view data) {
  if (data_type == DataType::kI32) {
    return absl::InvalidArgumentError(
        "got data_type I32, want F64, F32, F16 or BF16");
  }
  int64_t bytes = SizeOf(data_type);
  bool fits = shape.size() == 2;
  for (const int64_t length : shape) {
    fits = fits && length > 0 && !__builtin_mul_overflow(bytes, length, &bytes);
  }
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("got shape [", absl::StrJoin(shape, ", "),
                     "], want two lengths of at least 1"));
  }
  if (bytes != static_cast<int64_t>(data.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "got ", data.size(), " bytes of data, want ", bytes, " for shape [",
        absl::StrJoin(shape, ", "), "] of ", std::string(NameOf(data_type))));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Table> Table::Create(DataType data_type,
                                    absl::Span<const int64_t> shape,
                                    std::string_view data, TableLayout layout) {
  if (absl::Status status = CheckShape(data_type, shape, data); !status.ok()) {
    return status;
  }
  const bool transposed = layout == TableLayout::kHeadsBuckets;
  auto content = std::make_shared<Content>();
  content->data_type = data_type;
  content->num_buckets = shape[transposed ? 1 : 0];
  content->num_heads = shape[transposed ? 0 : 1];
  const int64_t width = SizeOf(data_type);
  const int64_t count = shape[0] * shape[1];
  content->values = std::make_unique<double[]>(count);
  std::string canonical(data.size(), '\0');
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = i / shape[1];
    const int64_t column = i % shape[1];
    const int64_t to = transposed ? column * shape[0] + row : i;
    data.copy(&canonical[to * width], width, i * width);
    const double value = ReadElement(
        data_type, reinterpret_cast<const std::byte*>(data.data()) + i * width);
    if (!std::isfinite(value)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "got ", value, " at [", row, ", ", column, "], want finite numbers"));
    }
    content->values[to] = value;
  }
  CanonicalWriter writer("attnbias.table", 1);
  writer.Integer(1, static_cast<int64_t>(data_type));
  writer.Integer(2, content->num_buckets);
  writer.Integer(3, content->num_heads);
  writer.Bytes(4, canonical);
  content->sha256 = Sha256Hex(writer.bytes());
  Table table;
  table.content_ = std::move(content);
  return table;
}

}  // namespace attnbias
