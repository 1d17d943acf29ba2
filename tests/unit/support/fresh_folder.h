// SPDX-License-Identifier: Apache-2.0
// Files of one test, which no other test that runs at the same time can reach by accident.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "gtest/gtest.h"

namespace attnbias {

// Returns a new, empty folder. It is removed when the process exits.
inline std::filesystem::path FreshFolder() {
  struct Folders {
    ~Folders() {
      std::error_code ignored;
      for (const auto& path : paths) std::filesystem::remove_all(path, ignored);
    }
    std::vector<std::filesystem::path> paths;
  };
  static Folders folders;
  std::string name = std::filesystem::path(testing::TempDir()) / "attnbias-test-XXXXXX";
  EXPECT_NE(mkdtemp(name.data()), nullptr) << name;
  return folders.paths.emplace_back(name);
}

inline std::string WriteFile(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
  return path.string();
}

}  // namespace attnbias
