// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace attnbias {

std::shared_ptr<const MappedFile> MappedFile::Open(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return nullptr;
  struct stat status = {};
  void* address = MAP_FAILED;
  if (fstat(descriptor, &status) == 0) {
    address = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ,
                   MAP_SHARED, descriptor, 0);
  }
  close(descriptor);
  if (address == MAP_FAILED) return nullptr;
  return std::shared_ptr<const MappedFile>(new MappedFile(address, status));
}

MappedFile::~MappedFile() {
  munmap(address_, static_cast<size_t>(status_.st_size));
}

}  // namespace attnbias
