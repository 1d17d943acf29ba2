// SPDX-License-Identifier: Apache-2.0
#include "server/codec/table_codec.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/codec/enums.h"
#include "server/codec/spec_codec.h"

namespace attnbias {
namespace {

static_assert(SameNumber(DataType::kF64, v1::DATA_TYPE_F64));
static_assert(SameNumber(DataType::kF32, v1::DATA_TYPE_F32));
static_assert(SameNumber(DataType::kF16, v1::DATA_TYPE_F16));
static_assert(SameNumber(DataType::kBF16, v1::DATA_TYPE_BF16));
static_assert(SameNumber(DataType::kI32, v1::DATA_TYPE_I32));
static_assert(SameNumber(TableLayout::kBucketsHeads,
                         v1::TABLE_LAYOUT_BUCKETS_HEADS));
static_assert(SameNumber(TableLayout::kHeadsBuckets,
                         v1::TABLE_LAYOUT_HEADS_BUCKETS));

absl::StatusOr<Table> DecodeInline(const v1::InlineTable& table,
                                   TableLayout layout,
                                   const std::string& path) {
  const auto size = static_cast<int64_t>(table.data().size());
  if (size > kMaxInlineTableBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ".data: got ", size,
                                                   " bytes, want at most ",
                                                   kMaxInlineTableBytes));
  }
  if (table.data_type() == v1::DATA_TYPE_UNSPECIFIED) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ".data_type: not set, want F64, F32, F16 or BF16"));
  }
  absl::StatusOr<Table> result =
      Table::Create(static_cast<DataType>(table.data_type()), table.shape(),
                    table.data(), layout);
  if (result.ok()) return result;
  return absl::Status(result.status().code(),
                      absl::StrCat(path, ": ", result.status().message()));
}

bool IsDigest(const std::string& text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

}  // namespace

absl::StatusOr<Table> DecodeTable(const v1::TableRef& ref,
                                  const std::string& path) {
  switch (ref.source_case()) {
    case v1::TableRef::kInlineTable:
      return DecodeInline(ref.inline_table(),
                          EnumOr(ref.layout(), TableLayout::kBucketsHeads),
                          path + ".inline_table");
    case v1::TableRef::kSha256:
      if (!IsDigest(ref.sha256())) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ".sha256: got ", ref.sha256().size(),
                         " characters, want 64 lowercase hexadecimal digits"));
      }
      return absl::NotFoundError(absl::StrCat(
          path, ".sha256: this server does not hold ", ref.sha256()));
    case v1::TableRef::SOURCE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": got no source, want inline_table or sha256"));
}

absl::Status DecodeTables(std::initializer_list<TableField> fields) {
  for (const TableField& field : fields) {
    if (!field.is_set) continue;
    absl::StatusOr<Table> table = DecodeTable(field.ref, field.path);
    if (!table.ok()) return table.status();
    *field.table = *std::move(table);
  }
  return absl::OkStatus();
}

void EncodeTable(const Table& table, v1::TableRef* ref) {
  ref->set_sha256(table.sha256());
  ref->set_layout(v1::TABLE_LAYOUT_BUCKETS_HEADS);
}

}  // namespace attnbias
