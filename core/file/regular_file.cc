// SPDX-License-Identifier: Apache-2.0
#include "core/file/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"

namespace attnbias {
namespace {

namespace fs = std::filesystem;

std::string Reason(int error) { return std::generic_category().message(error); }

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  return S_ISFIFO(mode) ? "a FIFO" : "a device";
}

bool IsIn(const fs::path& path, const fs::path& folder) {
  return std::ranges::mismatch(folder, path).in1 == folder.end();
}

// Returns models--NAME/blobs if `folder` is in models--NAME/snapshots of a Hugging Face cache,
// where files are links to blobs. Otherwise returns `folder`.
fs::path BlobsOf(const fs::path& folder) {
  for (fs::path at = folder; at.has_relative_path(); at = at.parent_path()) {
    if (at.parent_path().filename() != "snapshots") continue;
    const fs::path model = at.parent_path().parent_path();
    if (model.filename().string().starts_with("models--")) return model / "blobs";
  }
  return folder;
}

}  // namespace

absl::StatusOr<RegularFile> RegularFile::Open(const std::string& path, const std::string& folder) {
  // Opening a FIFO would otherwise wait for a writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (descriptor < 0 && errno == ENOENT) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  }
  if (descriptor < 0) return Invalid(path, ": cannot be opened: ", Reason(errno));
  RegularFile file(path, descriptor);
  struct stat info = {};
  if (::fstat(descriptor, &info) != 0) return Invalid(path, ": cannot be read: ", Reason(errno));
  if (!S_ISREG(info.st_mode)) {
    return Invalid(path, ": got ", KindOf(info.st_mode), ", want a regular file");
  }
  file.size_ = info.st_size;
  // Checks the open file, since the path may have changed in the meantime.
  if (!folder.empty()) ATTNBIAS_RETURN_IF_ERROR(file.CheckPlace(folder));
  return file;
}

RegularFile::RegularFile(std::string path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

RegularFile::RegularFile(RegularFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

RegularFile::~RegularFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::Status RegularFile::CheckPlace(const std::string& folder) const {
  std::error_code error;
  const fs::path place = fs::read_symlink(absl::StrCat("/proc/self/fd/", descriptor_), error);
  const fs::path wanted = error ? fs::path() : fs::canonical(folder, error);
  if (error) return Invalid(path_, ": cannot resolve its path: ", error.message());
  if (IsIn(place, wanted) || IsIn(place, BlobsOf(wanted))) return absl::OkStatus();
  return Invalid(path_, ": got a link to ", place.string(), ", want a file inside ",
                 wanted.string());
}

absl::StatusOr<std::string> RegularFile::Read(int64_t begin, int64_t end) const {
  std::string bytes(static_cast<size_t>(end - begin), '\0');
  int64_t at = begin;
  while (at < end) {
    const ssize_t got = ::pread(descriptor_, bytes.data() + (at - begin), end - at, at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Invalid("cannot be read: ", Reason(errno));
    if (got == 0) return Invalid("ended at byte ", at, ", want ", end);
    at += got;
  }
  return bytes;
}

absl::StatusOr<std::string> ReadRegularFile(const std::string& path, int64_t most,
                                            const std::string& folder) {
  ATTNBIAS_ASSIGN_OR_RETURN(const RegularFile file, RegularFile::Open(path, folder));
  if (file.size() > most) {
    return Invalid(path, ": got ", file.size(), " bytes, want at most ", most);
  }
  return Located(path, file.Read(0, file.size()));
}

}  // namespace attnbias
