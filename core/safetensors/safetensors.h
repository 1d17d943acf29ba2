// SPDX-License-Identifier: Apache-2.0
// Reads .safetensors files from untrusted sources, for the server and the command line.
//
// A file consists of an 8-byte header length, the header as JSON, and the data. Every header entry
// is checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/file/regular_file.h"

namespace attnbias {

// The header's entry for one tensor.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  // Range of the tensor's bytes within the data.
  int64_t begin = 0;
  int64_t end = 0;

  int64_t bytes() const { return end - begin; }
};

// Parses the JSON `header` into entries in ascending order of name. Returns INVALID_ARGUMENT unless
// each entry is complete and has a known dtype and the size that its shape implies, and the entries
// together cover `data_size` bytes exactly once.
absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(std::string_view header,
                                                                     int64_t data_size);

struct SafetensorsPlace {
  std::string path;
  // Empty if none is named; the file should then contain only one tensor.
  std::string tensor;
};

// Splits FILE.safetensors:TENSOR.
SafetensorsPlace SplitSafetensorsPlace(const std::string& text);

// Values are copied, since a mapped file could change or shrink while it is being read.
class SafetensorsFile {
 public:
  // Opens a file with RegularFile::Open. Returns INVALID_ARGUMENT if the file is in another format;
  // messages begin with the path.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path,
                                              const std::string& folder = "");

  const std::string& path() const { return file_.path(); }
  absl::Span<const SafetensorsEntry> entries() const { return entries_; }

  const SafetensorsEntry* Find(std::string_view name) const;
  // Same as Find; an empty name means the only entry.
  const SafetensorsEntry* FindOrOnly(std::string_view name) const;

  // Reads the bytes of `entry`, one of entries(). Returns INVALID_ARGUMENT, without a path in its
  // message, if the file has become shorter.
  absl::StatusOr<std::string> Read(const SafetensorsEntry& entry) const;

 private:
  explicit SafetensorsFile(RegularFile file) : file_(std::move(file)) {}
  absl::Status ReadHeader();

  RegularFile file_;
  std::vector<SafetensorsEntry> entries_;
  int64_t data_offset_ = 0;
};

}  // namespace attnbias
