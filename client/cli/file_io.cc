// SPDX-License-Identifier: Apache-2.0
#include "client/cli/file_io.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace attnbias {
namespace {

absl::Status Failed(const std::string& path, absl::string_view what) {
  return absl::UnknownError(absl::StrCat(
      path, ": cannot ", what, ": ", std::generic_category().message(errno)));
}

// A file under a name of its own, gone again unless it is published.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& beside)
      : path_(absl::StrCat(beside, ".XXXXXX")),
        descriptor_(::mkstemp(path_.data())) {}

  ~TemporaryFile() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    if (!published_) ::unlink(path_.c_str());
  }

  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  bool ok() const { return descriptor_ >= 0; }

  bool Write(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return true;
  }

  bool Publish(const std::string& path) {
    // mkstemp makes it private; a new file has the mode the umask leaves.
    const mode_t mask = ::umask(0);
    ::umask(mask);
    published_ = ::fchmod(descriptor_, 0666 & ~mask) == 0 &&
                 ::fsync(descriptor_) == 0 &&
                 std::rename(path_.c_str(), path.c_str()) == 0;
    return published_;
  }

 private:
  std::string path_;
  const int descriptor_;
  bool published_ = false;
};

}  // namespace

absl::Status WriteFileAtomically(const std::string& path,
                                 const std::vector<absl::string_view>& pieces) {
  TemporaryFile file(path);
  if (!file.ok()) return Failed(path, "create");
  for (const absl::string_view piece : pieces) {
    if (!file.Write(piece)) return Failed(path, "write");
  }
  if (!file.Publish(path)) return Failed(path, "write");
  return absl::OkStatus();
}

}  // namespace attnbias
