// SPDX-License-Identifier: Apache-2.0
#include "server/codec/table_codec.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "server/limits.h"

namespace attnbias {
namespace {

bool IsDigest(const std::string& text) {
  return text.size() == 64 &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

absl::StatusOr<Table> DecodeInline(const v1::InlineTable& table,
                                   TableLayout layout,
                                   const std::string& path) {
  const auto size = static_cast<int64_t>(table.data().size());
  if (size > kMaxInlineTableBytes) {
    return Invalid(path, ".data: got ", size, " bytes, want at most ",
                   kMaxInlineTableBytes,
                   " in a request; a larger table is mounted (--tables)");
  }
  if (table.data_type() == v1::DATA_TYPE_UNSPECIFIED) {
    return Invalid(path, ".data_type: not set, want F64, F32, F16 or BF16");
  }
  absl::StatusOr<Table> result =
      Table::Create(static_cast<DataType>(table.data_type()), table.shape(),
                    table.data(), layout);
  if (!result.ok()) return Located(path, result.status());
  return result;
}

absl::StatusOr<Table> FindNamed(const std::string& name,
                                const std::string& path,
                                const TableSet& tables) {
  if (const MountedTable* const mounted = tables.Find(name)) {
    return mounted->table;
  }
  if (!tables.MayHave(name)) {
    return absl::PermissionDeniedError(absl::StrCat(
        path, ": got '", Shortened(name),
        "', want the name of a table that this caller may use; ListTables has "
        "them"));
  }
  return absl::NotFoundError(
      absl::StrCat(path, ": got '", Shortened(name),
                   "', want the name of a mounted table; ListTables has them"));
}

absl::StatusOr<Table> FindDigest(const std::string& sha256,
                                 const std::string& path,
                                 const TableSet& tables) {
  if (!IsDigest(sha256)) {
    return Invalid(path, ": got ", sha256.size(),
                   " characters, want 64 lowercase hexadecimal digits");
  }
  if (std::optional<Table> table = tables.FindDigest(sha256)) return *table;
  return absl::NotFoundError(
      absl::StrCat(path, ": this server does not hold ", sha256));
}

// A mounted table in the layout that it is said to be stored in.
absl::StatusOr<Table> InLayout(const absl::StatusOr<Table>& table,
                               TableLayout layout, const std::string& path) {
  ATTNBIAS_RETURN_IF_ERROR(table.status());
  absl::StatusOr<Table> result = table->In(layout);
  if (!result.ok()) return Located(path, result.status());
  return result;
}

}  // namespace

absl::StatusOr<Table> DecodeTable(const v1::TableRef& ref,
                                  const std::string& path,
                                  const TableSet& tables) {
  const TableLayout layout = ref.layout() == v1::TABLE_LAYOUT_HEADS_BUCKETS
                                 ? TableLayout::kHeadsBuckets
                                 : TableLayout::kBucketsHeads;
  switch (ref.source_case()) {
    case v1::TableRef::kName:
      return InLayout(FindNamed(ref.name(), path + ".name", tables), layout,
                      path);
    case v1::TableRef::kInlineTable:
      return DecodeInline(ref.inline_table(), layout, path + ".inline_table");
    case v1::TableRef::kSha256:
      return InLayout(FindDigest(ref.sha256(), path + ".sha256", tables),
                      layout, path);
    case v1::TableRef::SOURCE_NOT_SET:
      break;
  }
  return Invalid(path, ": got no source, want name, inline_table or sha256");
}

void EncodeTable(const Table& table, v1::TableRef* ref) {
  ref->set_sha256(table.sha256());
  ref->set_layout(v1::TABLE_LAYOUT_BUCKETS_HEADS);
}

}  // namespace attnbias
