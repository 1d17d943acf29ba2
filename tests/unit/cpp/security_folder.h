// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>

#include <string>

#include "tests/unit/support/fresh_folder.h"

namespace attnbias {

// A folder for TLS and token files. Its destructor unsets the variables that name such files.
class SecurityFolder {
 public:
  SecurityFolder() = default;
  SecurityFolder(const SecurityFolder&) = delete;
  SecurityFolder& operator=(const SecurityFolder&) = delete;
  ~SecurityFolder() {
    for (const char* name :
         {"ATTNBIAS_CLIENT_TLS", "ATTNBIAS_CLIENT_TLS_CA", "ATTNBIAS_CLIENT_TLS_CERT",
          "ATTNBIAS_CLIENT_TLS_KEY", "ATTNBIAS_CLIENT_TLS_SERVER_NAME",
          "ATTNBIAS_CLIENT_TOKEN_FILE", "ATTNBIAS_CLIENT_TOKEN"}) {
      unsetenv(name);
    }
  }

  const std::string& folder() const { return folder_; }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

 private:
  const std::string folder_ = FreshFolder();
};

}  // namespace attnbias
