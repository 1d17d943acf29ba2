// SPDX-License-Identifier: Apache-2.0
#include "core/mount/registry.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/request/rules.h"

namespace attnbias {
namespace {

// Prefix that distinguishes a digest from a name in a table reference.
constexpr char kDigestPrefix[] = "sha256:";

absl::Status CheckName(const std::string& name) {
  constexpr size_t kMost = TableSetBuilder::kMaxNameBytes;
  if (!name.empty() && name.size() <= kMost && std::ranges::all_of(name, absl::ascii_isprint) &&
      !name.starts_with(kDigestPrefix)) {
    return absl::OkStatus();
  }
  return Invalid("got the name '", absl::CEscape(name.substr(0, kMost)),
                 "' for a table, want a name of 1 to ", kMost,
                 " printable ASCII characters that does not begin with ", kDigestPrefix);
}

}  // namespace

TableSetPtr TableSet::Under(const std::vector<std::string>& prefixes) const {
  MutexLock lock(mutex_);
  const auto found = parts_.find(prefixes);
  if (found != parts_.end()) return found->second;
  auto set = std::make_shared<TableSet>();
  set->prefixes_ = prefixes;
  for (const MountedTable& mounted : tables_) {
    if (set->MayHave(mounted.name)) set->Append(mounted);
  }
  if (parts_.size() >= kMaxParts) parts_.clear();
  parts_.emplace(prefixes, set);
  return set;
}

bool TableSet::MayHave(std::string_view name) const {
  return std::ranges::any_of(
      prefixes_, [name](const std::string& prefix) { return name.starts_with(prefix); });
}

void TableSet::Append(const MountedTable& mounted) {
  // A spec resolved on another replica names the transpose by its digest.
  for (const TableLayout layout : {TableLayout::kBucketsHeads, TableLayout::kHeadsBuckets}) {
    const absl::StatusOr<Table> face = mounted.table.In(layout);
    if (face.ok()) by_digest_.emplace(face->sha256(), *face);
  }
  tables_.push_back(mounted);
}

const MountedTable* TableSet::Find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tables_, name, {}, &MountedTable::name);
  return found != tables_.end() && found->name == name ? &*found : nullptr;
}

std::optional<Table> TableSet::FindDigest(const std::string& sha256) const {
  const auto found = by_digest_.find(sha256);
  if (found == by_digest_.end()) return std::nullopt;
  return found->second;
}

absl::StatusOr<MountedTable*> TableSetBuilder::Add(const std::string& name, SafetensorsFile& file,
                                                   const SafetensorsEntry& entry) {
  ATTNBIAS_RETURN_IF_ERROR(CheckName(name));
  if (entry.bytes() > max_bytes_ - bytes_) {
    return Invalid(file.path(), ":", entry.name, ": got ", entry.bytes(), " bytes on top of ",
                   bytes_, " for other tables, want at most ", max_bytes_,
                   ", half of the memory budget");
  }
  std::shared_ptr<const void> held;
  if (hold_ != nullptr) {
    ATTNBIAS_ASSIGN_OR_RETURN(held, hold_(entry.bytes()));
  }
  ATTNBIAS_ASSIGN_OR_RETURN(Table table, ReadTable(file, entry, std::move(held)));
  bytes_ += entry.bytes();
  const std::string file_name = std::filesystem::path(file.path()).filename();
  tables_.push_back({.name = name,
                     .source = absl::CEscape(absl::StrCat(file_name, ":", entry.name)),
                     .table = std::move(table)});
  return &tables_.back();
}

absl::StatusOr<TableSetPtr> TableSetBuilder::Build() && {
  std::ranges::sort(tables_, {}, &MountedTable::name);
  auto set = std::make_shared<TableSet>();
  for (const MountedTable& mounted : tables_) {
    if (!set->tables_.empty() && set->tables_.back().name == mounted.name) {
      return Invalid("two tables have the name '", mounted.name, "', from ",
                     set->tables_.back().source, " and ", mounted.source);
    }
    set->Append(mounted);
  }
  return set;
}

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

absl::StatusOr<Table> DecodeInline(const v1::InlineTable& table, TableLayout layout,
                                   const std::string& path) {
  const auto size = static_cast<int64_t>(table.data().size());
  if (size > kMaxInlineTableBytes) {
    return Invalid(path, ".data: got ", size, " bytes, want at most ", kMaxInlineTableBytes,
                   " in a request; mount larger tables (--tables)");
  }
  if (table.data_type() == v1::DATA_TYPE_UNSPECIFIED) {
    return Invalid(path, ".data_type: not set, want F64, F32, F16 or BF16");
  }
  return Located(path, Table::Create(static_cast<DataType>(table.data_type()), table.shape(),
                                     table.data(), layout));
}

absl::StatusOr<Table> FindNamed(const std::string& name, const std::string& path,
                                const TableSet& tables) {
  if (const MountedTable* const mounted = tables.Find(name)) return mounted->table;
  const std::string got = absl::StrCat(path, ": got '", Shortened(name), "', want the name of a ");
  return tables.MayHave(name)
             ? absl::NotFoundError(absl::StrCat(got, "mounted table; ListTables lists them"))
             : absl::PermissionDeniedError(
                   absl::StrCat(got, "table that this caller may use; ListTables lists them"));
}

absl::StatusOr<Table> FindDigest(const std::string& sha256, const std::string& path,
                                 const TableSet& tables) {
  if (sha256.size() != 64 || sha256.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return Invalid(path, ": got ", sha256.size(),
                   " characters, want 64 lowercase hexadecimal digits");
  }
  if (std::optional<Table> table = tables.FindDigest(sha256)) return *table;
  return absl::NotFoundError(absl::StrCat(path, ": this server does not hold ", sha256));
}

absl::StatusOr<Table> Find(const v1::TableRef& ref, const std::string& path,
                           const TableSet& tables) {
  const TableLayout layout = ref.layout() == v1::TABLE_LAYOUT_HEADS_BUCKETS
                                 ? TableLayout::kHeadsBuckets
                                 : TableLayout::kBucketsHeads;
  if (ref.has_inline_table()) {
    return DecodeInline(ref.inline_table(), layout, path + ".inline_table");
  }
  if (!ref.has_name() && !ref.has_sha256()) {
    return Invalid(path, ": got no source, want name, inline_table or sha256");
  }
  ATTNBIAS_ASSIGN_OR_RETURN(const Table table,
                            ref.has_name() ? FindNamed(ref.name(), path + ".name", tables)
                                           : FindDigest(ref.sha256(), path + ".sha256", tables));
  return Located(path, table.In(layout));
}

// Replaces the references in `message`, whose path is `path`. Tables for logits terms allow only
// one axis order.
absl::Status TakeFrom(const std::string& path, bool takes_layout, const TableSet& mounted,
                      Message& message, Tables& tables) {
  const auto& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->message_type() == nullptr) continue;
    const std::string name = PathOf(path, *field);
    if (field->message_type() == v1::TableRef::descriptor()) {
      auto& ref = static_cast<v1::TableRef&>(*reflection.MutableMessage(&message, field));
      if (!takes_layout && ref.layout() != v1::TABLE_LAYOUT_UNSPECIFIED) {
        return Invalid(name,
                       ".layout: got a value, want none: these tables have only one order of axes");
      }
      ATTNBIAS_ASSIGN_OR_RETURN(Table table, Find(ref, name, mounted));
      ref = tables.Add(std::move(table), name);
      continue;
    }
    // Checked before any of the tables is read.
    const int most = field->options().GetExtension(v1::rule).max_items();
    if (field->is_repeated() && most > 0 && reflection.FieldSize(message, field) > most) {
      return Invalid(name, ": got ", reflection.FieldSize(message, field),
                     " elements, want at most ", most);
    }
    ATTNBIAS_RETURN_IF_ERROR(
        ForEachMessage(message, *field, name, [&](const std::string& inner, Message& element) {
          return TakeFrom(inner, takes_layout, mounted, element, tables);
        }));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Tables> TakeTables(const TableSet& mounted, Message& request) {
  Tables tables;
  ATTNBIAS_RETURN_IF_ERROR(TakeFrom("", request.GetDescriptor() == v1::TensorSpec::descriptor(),
                                    mounted, request, tables));
  return tables;
}

}  // namespace attnbias
