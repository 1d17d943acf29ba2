// SPDX-License-Identifier: Apache-2.0
#include "client/cli/file_io.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace attnbias {

absl::Status WriteFileAtomically(const std::string& path,
                                 const std::vector<absl::string_view>& pieces) {
  const auto failed = [&](absl::string_view what) {
    return absl::UnknownError(
        absl::StrCat(path, ": cannot ", what, ": ", std::generic_category().message(errno)));
  };
  std::string temporary = absl::StrCat(path, ".XXXXXX");
  const int descriptor = ::mkstemp(temporary.data());
  if (descriptor < 0) return failed("create");
  std::FILE* const file = ::fdopen(descriptor, "wb");
  // mkstemp makes the file private; a new file should have the mode that the umask allows.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  const bool is_written =
      absl::c_all_of(pieces,
                     [&](absl::string_view piece) {
                       return std::fwrite(piece.data(), 1, piece.size(), file) == piece.size();
                     }) &&
      std::fflush(file) == 0 && ::fchmod(descriptor, 0666 & ~mask) == 0 &&
      ::fsync(descriptor) == 0 && std::rename(temporary.c_str(), path.c_str()) == 0;
  absl::Status status = is_written ? absl::OkStatus() : failed("write");
  std::fclose(file);
  if (!is_written) ::unlink(temporary.c_str());
  return status;
}

}  // namespace attnbias
