// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/small_file.h"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace attnbias {
namespace {

// A certificate or a token has a few thousand; a device never ends.
constexpr size_t kMostBytes = 1 << 20;

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& path,
                                          absl::string_view name) {
  const std::unique_ptr<std::FILE, decltype(&std::fclose)> file(
      std::fopen(path.c_str(), "rbe"), &std::fclose);
  std::string bytes;
  if (file != nullptr) {
    char block[4096];
    while (const size_t size =
               std::fread(block, 1, sizeof(block), file.get())) {
      bytes.append(block, size);
      if (bytes.size() > kMostBytes) {
        return absl::InvalidArgumentError(absl::StrCat(
            name, ": \"", path, "\" has more than ", kMostBytes, " bytes"));
      }
    }
    if (std::ferror(file.get()) == 0) return bytes;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": cannot read \"", path,
                   "\": ", std::generic_category().message(errno)));
}

}  // namespace attnbias
