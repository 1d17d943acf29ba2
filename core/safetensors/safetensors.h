// SPDX-License-Identifier: Apache-2.0
// Reads .safetensors files, whatever is in them: for the server and for the
// command line.
//
// A file is a header's length in 8 bytes, the header in JSON, then the data.
// Nothing that the header says is believed before it is checked.
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

// What a header says of one tensor.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  // Of its bytes, within the data.
  int64_t begin = 0;
  int64_t end = 0;

  int64_t bytes() const { return end - begin; }
};

// The entries of the JSON `header`, by ascending name. INVALID_ARGUMENT unless
// each is complete, of a known dtype, its size that of its shape, and together
// they cover `data_size` bytes once and without holes.
absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(
    std::string_view header, int64_t data_size);

// FILE.safetensors:TENSOR taken apart.
struct SafetensorsPlace {
  std::string path;
  // Empty where none is named: the file should have just one.
  std::string tensor;
};

SafetensorsPlace SplitSafetensorsPlace(const std::string& text);

// Numbers are copied out: a mapped file's would change, or be gone, when
// somebody writes to it.
class SafetensorsFile {
 public:
  // A file that RegularFile::Open opens. INVALID_ARGUMENT if it is of another
  // format; messages begin with the path.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path,
                                              const std::string& folder = "");

  const std::string& path() const { return file_.path(); }
  absl::Span<const SafetensorsEntry> entries() const { return entries_; }

  // Null if there is none of this name.
  const SafetensorsEntry* Find(std::string_view name) const;
  // The same; an empty name is that of the only entry.
  const SafetensorsEntry* FindOrOnly(std::string_view name) const;

  // The bytes of `entry`, one of entries(). INVALID_ARGUMENT, its message
  // without a path, if the file has become shorter.
  absl::StatusOr<std::string> Read(const SafetensorsEntry& entry) const;

 private:
  explicit SafetensorsFile(RegularFile file) : file_(std::move(file)) {}
  absl::Status ReadHeader();

  RegularFile file_;
  std::vector<SafetensorsEntry> entries_;
  int64_t data_offset_ = 0;
};

}  // namespace attnbias
