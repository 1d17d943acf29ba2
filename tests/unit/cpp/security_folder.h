// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace attnbias {

// A folder for TLS and token files. Its destructor unsets the variables that name such files.
class SecurityFolder {
 public:
  SecurityFolder() { EXPECT_NE(mkdtemp(folder_.data()), nullptr); }
  SecurityFolder(const SecurityFolder&) = delete;
  SecurityFolder& operator=(const SecurityFolder&) = delete;
  ~SecurityFolder() {
    for (const char* name :
         {"ATTNBIAS_CLIENT_TLS", "ATTNBIAS_CLIENT_TLS_CA", "ATTNBIAS_CLIENT_TLS_CERT",
          "ATTNBIAS_CLIENT_TLS_KEY", "ATTNBIAS_CLIENT_TLS_SERVER_NAME",
          "ATTNBIAS_CLIENT_TOKEN_FILE", "ATTNBIAS_CLIENT_TOKEN"}) {
      unsetenv(name);
    }
    std::filesystem::remove_all(folder_);
  }

  const std::string& folder() const { return folder_; }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_ = ::testing::TempDir() + "security_XXXXXX";
};

}  // namespace attnbias
