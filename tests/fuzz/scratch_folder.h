// SPDX-License-Identifier: Apache-2.0
// Files for code that reads files, in memory if the machine supports it.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace attnbias {

// A folder for this process that is removed on normal exit.
class ScratchFolder {
 public:
  ScratchFolder() {
    const std::filesystem::path shm = "/dev/shm";
    std::error_code none;
    const auto parent =
        std::filesystem::is_directory(shm, none) ? shm : std::filesystem::temp_directory_path();
    std::string name = parent / "attnbias-fuzz-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }

  std::string path() const { return path_; }

  // Writes `bytes` to the file `name` and returns its path.
  std::string Write(const std::string& name, std::string_view bytes) const {
    const std::filesystem::path path = path_ / name;
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) std::abort();
    return path;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace attnbias
