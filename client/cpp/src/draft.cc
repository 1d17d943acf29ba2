// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/draft.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace attnbias {
namespace {

// As the umask leaves it.
constexpr mode_t kMode = 0666;

// Of the call that failed last.
absl::Status Cannot(absl::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

absl::Status MakeFolderOf(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(),
                             absl::StrCat("cannot make ", folder.string()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Draft>> Draft::TryLock(const std::string& path) {
  if (absl::Status status = MakeFolderOf(path); !status.ok()) return status;
  const int descriptor =
      open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kMode);
  if (descriptor < 0) return Cannot("write", path);
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    const absl::Status status = Cannot("lock", path);
    const bool is_held = errno == EWOULDBLOCK;
    close(descriptor);
    if (is_held) return nullptr;
    return status;
  }
  std::unique_ptr<Draft> draft(new Draft(path, descriptor));
  if (!draft->IsAtItsPath()) return nullptr;
  return draft;
}

Draft::~Draft() {
  if (IsAtItsPath()) unlink(path_.c_str());
  // A child that has just been forked may still have the file open.
  flock(descriptor_, LOCK_UN);
  close(descriptor_);
}

absl::Status Draft::Write(std::initializer_list<std::string_view> pieces) {
  if (ftruncate(descriptor_, 0) != 0) return Cannot("write", path_);
  for (std::string_view piece : pieces) {
    while (!piece.empty()) {
      const ssize_t written = write(descriptor_, piece.data(), piece.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return Cannot("write", path_);
      piece.remove_prefix(static_cast<size_t>(written));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<struct stat> Draft::Sync() {
  struct stat status = {};
  if (fsync(descriptor_) != 0 || fstat(descriptor_, &status) != 0) {
    return Cannot("write", path_);
  }
  return status;
}

absl::Status Draft::RenameTo(const std::string& path) {
  if (absl::Status status = MakeFolderOf(path); !status.ok()) return status;
  if (std::rename(path_.c_str(), path.c_str()) != 0) {
    return Cannot("write", path);
  }
  return absl::OkStatus();
}

bool Draft::IsAtItsPath() const {
  struct stat own = {};
  struct stat named = {};
  return fstat(descriptor_, &own) == 0 && stat(path_.c_str(), &named) == 0 &&
         own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

}  // namespace attnbias
