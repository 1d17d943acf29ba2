// SPDX-License-Identifier: Apache-2.0
#include "server/run/table_mounts.h"

#include <sys/stat.h>

#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/errors.h"
#include "core/mount/registry.h"
#include "core/safetensors/safetensors.h"
#include "core/table/table.h"
#include "server/observe/logging.h"

namespace attnbias {
namespace {

namespace fs = std::filesystem;

constexpr char kSafetensors[] = ".safetensors";
constexpr char kJson[] = ".json";

// Returns the files in `folder` that have one of these extensions and are not hidden, in order.
absl::StatusOr<std::set<fs::path>> FilesIn(const std::string& folder,
                                           const std::set<std::string>& extensions) {
  std::set<fs::path> files;
  std::error_code error;
  fs::directory_iterator next(folder, error);
  for (; !error && next != fs::directory_iterator(); next.increment(error)) {
    const fs::path& path = next->path();
    if (extensions.count(path.extension().string()) == 0) continue;
    if (!absl::StartsWith(path.filename().string(), ".")) files.insert(path);
  }
  if (error) return Invalid(folder, ": ", error.message());
  return files;
}

std::string FlagValue(const std::string& flag) { return flag.substr(flag.find('=') + 1); }

absl::StatusOr<std::string> FlagName(const std::string& flag, absl::string_view wanted) {
  const size_t equals = flag.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == flag.size()) {
    return Invalid("got '", flag, "', want ", wanted);
  }
  return flag.substr(0, equals);
}

absl::Status AddTable(const std::string& flag, TableSetBuilder& builder) {
  ATTNBIAS_ASSIGN_OR_RETURN(const std::string name, FlagName(flag, "NAME=FILE.safetensors:TENSOR"));
  const SafetensorsPlace source = SplitSafetensorsPlace(FlagValue(flag));
  ATTNBIAS_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(source.path));
  const SafetensorsEntry* entry = file.FindOrOnly(source.tensor);
  if (entry == nullptr) {
    constexpr size_t kShown = 10;
    const auto names = file.entries().subspan(0, kShown);
    return Invalid(
        source.path, ": got the tensor '", source.tensor, "', want one of ",
        absl::StrJoin(names, ", ",
                      [](std::string* out, const SafetensorsEntry& e) { out->append(e.name); }),
        names.size() < file.entries().size() ? ", ..." : "");
  }
  return builder.Add(name, file, *entry).status();
}

absl::Status AddCheckpointFlag(const std::string& flag, TableSetBuilder& builder) {
  ATTNBIAS_ASSIGN_OR_RETURN(const std::string name, FlagName(flag, "NAME=FOLDER"));
  return AddCheckpoint(name, FlagValue(flag), builder);
}

// Returns a string that changes when the file is modified or replaced.
std::string StampOf(const fs::path& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return absl::StrCat(path.string(), "\n");
  return absl::StrCat(path.string(), " ", info.st_dev, " ", info.st_ino, " ", info.st_size, " ",
                      info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, " ", info.st_ctim.tv_sec, ".",
                      info.st_ctim.tv_nsec, "\n");
}

void AppendStamps(const std::string& folder, const std::set<std::string>& extensions,
                  std::string& stamp) {
  const auto files = FilesIn(folder, extensions);
  if (!files.ok()) return;
  for (const fs::path& path : *files) stamp += StampOf(path);
}

}  // namespace

TableMounts::TableMounts(TableSources sources, int64_t max_bytes, TableRegistry* registry,
                         TableSetBuilder::Hold hold)
    : sources_(std::move(sources)),
      max_bytes_(max_bytes),
      hold_(std::move(hold)),
      registry_(*registry) {}

void TableMounts::Refresh() {
  if (!stale_.exchange(false) && Stamp() == stamp_) return;
  const absl::Status status = Load();
  const size_t mounted = registry_.Get()->tables().size();
  if (status.ok()) {
    last_error_.clear();
    LogInfo(absl::StrCat("tables: reloaded, ", mounted, " mounted"));
  } else {
    // Retries at the next Refresh, since the cause may be the system rather than the files.
    stale_ = true;
    std::string message(status.message());
    if (message == last_error_) return;
    LogError(absl::StrCat("tables: reload failed, keeping the previous ones (", mounted,
                          " mounted): ", message));
    last_error_ = std::move(message);
  }
}

absl::Status TableMounts::Load() {
  // Computed before the files are read, so that the next Refresh sees changes made in the meantime.
  stamp_ = Stamp();
  absl::StatusOr<TableSetPtr> tables = Read();
  failed_ = !tables.ok();
  if (failed_) return tables.status();
  // The folder has been emptied or is briefly missing.
  if ((*tables)->tables().empty() && !registry_.Get()->tables().empty()) {
    failed_ = true;
    return Invalid("--tables: ", sources_.folder, ": got no tables, want at least one");
  }
  if ((*tables)->tables().empty() && !sources_.folder.empty()) {
    LogWarning(absl::StrCat("--tables: ", sources_.folder, ": got no tables so far"));
  }
  registry_.Replace(*std::move(tables));
  return absl::OkStatus();
}

absl::StatusOr<TableSetPtr> TableMounts::Read() const {
  TableSetBuilder builder(max_bytes_, hold_);
  ATTNBIAS_RETURN_IF_ERROR(Located("--tables", AddFolder(builder)));
  for (const std::string& table : sources_.tables) {
    ATTNBIAS_RETURN_IF_ERROR(Located("--table", AddTable(table, builder)));
  }
  for (const std::string& checkpoint : sources_.checkpoints) {
    ATTNBIAS_RETURN_IF_ERROR(Located("--checkpoint", AddCheckpointFlag(checkpoint, builder)));
  }
  return std::move(builder).Build();
}

absl::Status TableMounts::AddFolder(TableSetBuilder& builder) const {
  if (sources_.folder.empty()) return absl::OkStatus();
  ATTNBIAS_ASSIGN_OR_RETURN(const auto files, FilesIn(sources_.folder, {kSafetensors}));
  for (const fs::path& path : files) {
    ATTNBIAS_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path, sources_.folder));
    for (const SafetensorsEntry& entry : file.entries()) {
      if (!IsTable(entry)) continue;
      const std::string name = absl::StrCat(path.stem().string(), ":", entry.name);
      ATTNBIAS_RETURN_IF_ERROR(builder.Add(name, file, entry).status());
    }
  }
  return absl::OkStatus();
}

// Ignores missing folders, which Load reports.
std::string TableMounts::Stamp() const {
  std::string stamp;
  if (!sources_.folder.empty()) AppendStamps(sources_.folder, {kSafetensors}, stamp);
  for (const std::string& table : sources_.tables) {
    stamp += StampOf(SplitSafetensorsPlace(FlagValue(table)).path);
  }
  for (const std::string& checkpoint : sources_.checkpoints) {
    AppendStamps(FlagValue(checkpoint), {kSafetensors, kJson}, stamp);
  }
  return stamp;
}

}  // namespace attnbias
