// SPDX-License-Identifier: Apache-2.0
#include "core/mount/table_refs.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attnbias/v1/encodings.pb.h"
#include "core/base/errors.h"

namespace attnbias {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

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

absl::StatusOr<Table> Find(const v1::TableRef& ref, const std::string& path,
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

// Replaces the references in `message`, whose path is `path` with a "." after
// it. Terms of logits have tables with one order of axes alone.
absl::Status TakeFrom(const std::string& path, bool takes_layout,
                      const TableSet& mounted, Message& message,
                      Tables& tables) {
  const auto& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->message_type() == nullptr) continue;
    const std::string name = absl::StrCat(path, field->name());
    if (field->message_type() == v1::TableRef::descriptor()) {
      auto& ref = static_cast<v1::TableRef&>(
          *reflection.MutableMessage(&message, field));
      if (!takes_layout && ref.layout() != v1::TABLE_LAYOUT_UNSPECIFIED) {
        return Invalid(name,
                       ".layout: set, want it unset: these tables have only "
                       "one order of axes");
      }
      ATTNBIAS_ASSIGN_OR_RETURN(Table table, Find(ref, name, mounted));
      ref = tables.Add(std::move(table), name);
    } else if (!field->is_repeated()) {
      ATTNBIAS_RETURN_IF_ERROR(
          TakeFrom(name + ".", takes_layout, mounted,
                   *reflection.MutableMessage(&message, field), tables));
    } else {
      // Before any of what may be many tables is read.
      const int most = field->options().GetExtension(v1::rule).max_items();
      if (most > 0 && reflection.FieldSize(message, field) > most) {
        return Invalid(name, ": got ", reflection.FieldSize(message, field),
                       " elements, want at most ", most);
      }
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        ATTNBIAS_RETURN_IF_ERROR(TakeFrom(
            absl::StrCat(name, "[", i, "]."), takes_layout, mounted,
            *reflection.MutableRepeatedMessage(&message, field, i), tables));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Tables> TakeTables(const TableSet& mounted, Message& request) {
  Tables tables;
  ATTNBIAS_RETURN_IF_ERROR(
      TakeFrom("", request.GetDescriptor() == v1::TensorSpec::descriptor(),
               mounted, request, tables));
  return tables;
}

}  // namespace attnbias
