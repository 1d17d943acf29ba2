// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace attnbias {

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(
    const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  }
  struct stat status = {};
  void* address = nullptr;
  bool ok = fstat(descriptor, &status) == 0;
  if (ok && status.st_size > 0) {  // nothing cannot be mapped
    address = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ,
                   MAP_SHARED, descriptor, 0);
    ok = address != MAP_FAILED;
  }
  const int error = errno;
  close(descriptor);
  if (!ok) return absl::ErrnoToStatus(error, absl::StrCat("cannot map ", path));
  return std::shared_ptr<const MappedFile>(new MappedFile(address, status));
}

MappedFile::~MappedFile() {
  if (address_ != nullptr) {
    munmap(address_, static_cast<size_t>(status_.st_size));
  }
}

}  // namespace attnbias
