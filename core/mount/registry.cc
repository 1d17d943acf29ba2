// SPDX-License-Identifier: Apache-2.0
#include "core/mount/registry.h"

#include <algorithm>
#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"

namespace attnbias {
namespace {

// Where a reference to a table may say either a name or a digest, the digest
// begins so.
constexpr char kDigestPrefix[] = "sha256:";

absl::Status CheckName(const std::string& name) {
  const bool printable = std::ranges::all_of(name, absl::ascii_isprint);
  if (!name.empty() && name.size() <= TableSetBuilder::kMaxNameBytes &&
      printable && !absl::StartsWith(name, kDigestPrefix)) {
    return absl::OkStatus();
  }
  return Invalid("got the name '",
                 absl::CEscape(name.substr(0, TableSetBuilder::kMaxNameBytes)),
                 "' for a table, want 1 to ", TableSetBuilder::kMaxNameBytes,
                 " printable ASCII characters that do not begin with ",
                 kDigestPrefix);
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
  return std::ranges::any_of(prefixes_, [name](const std::string& prefix) {
    return name.starts_with(prefix);
  });
}

void TableSet::Append(const MountedTable& mounted) {
  // A spec resolved on another replica names the transpose by its digest.
  for (const TableLayout layout :
       {TableLayout::kBucketsHeads, TableLayout::kHeadsBuckets}) {
    const absl::StatusOr<Table> face = mounted.table.In(layout);
    if (face.ok()) by_digest_.emplace(face->sha256(), *face);
  }
  tables_.push_back(mounted);
}

const MountedTable* TableSet::Find(std::string_view name) const {
  const auto found =
      std::ranges::lower_bound(tables_, name, {}, &MountedTable::name);
  return found != tables_.end() && found->name == name ? &*found : nullptr;
}

std::optional<Table> TableSet::FindDigest(const std::string& sha256) const {
  const auto found = by_digest_.find(sha256);
  if (found == by_digest_.end()) return std::nullopt;
  return found->second;
}

absl::StatusOr<MountedTable*> TableSetBuilder::Add(
    const std::string& name, SafetensorsFile& file,
    const SafetensorsEntry& entry) {
  ATTNBIAS_RETURN_IF_ERROR(CheckName(name));
  if (entry.bytes() > max_bytes_ - bytes_) {
    return Invalid(file.path(), ":", entry.name, ": got ", entry.bytes(),
                   " bytes after ", bytes_,
                   " of other tables, want all mounted "
                   "tables together to take at most ",
                   max_bytes_, ", half of the memory budget");
  }
  std::shared_ptr<const void> held;
  if (hold_ != nullptr) {
    ATTNBIAS_ASSIGN_OR_RETURN(held, hold_(entry.bytes()));
  }
  ATTNBIAS_ASSIGN_OR_RETURN(Table table,
                            ReadTable(file, entry, std::move(held)));
  bytes_ += entry.bytes();
  const std::string file_name = std::filesystem::path(file.path()).filename();
  tables_.push_back(
      {.name = name,
       .source = absl::CEscape(absl::StrCat(file_name, ":", entry.name)),
       .table = std::move(table)});
  return &tables_.back();
}

absl::StatusOr<TableSetPtr> TableSetBuilder::Build() && {
  std::ranges::sort(tables_, {}, &MountedTable::name);
  auto set = std::make_shared<TableSet>();
  for (const MountedTable& mounted : tables_) {
    if (!set->tables_.empty() && set->tables_.back().name == mounted.name) {
      return Invalid("two tables have the name '", mounted.name, "', out of ",
                     set->tables_.back().source, " and ", mounted.source);
    }
    set->Append(mounted);
  }
  return set;
}

}  // namespace attnbias
