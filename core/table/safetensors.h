// SPDX-License-Identifier: Apache-2.0
// Reads .safetensors files, whatever is in them.
//
// A file is a header's length in 8 bytes, the header in JSON, then the data.
// Nothing that the header says is believed before it is checked.
#ifndef ATTNBIAS_CORE_TABLE_SAFETENSORS_H_
#define ATTNBIAS_CORE_TABLE_SAFETENSORS_H_

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/table/table.h"
#include "core/tensor/range.h"

namespace attnbias {

// What a header says of one tensor.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  Range bytes;  // within the data

  // Whether it is of a type and of axes that a Table may have.
  bool IsTable() const;
};

// The entries of the JSON `header`, by ascending name. INVALID_ARGUMENT unless
// each is complete, of a known dtype, its size that of its shape, and together
// they cover `data_size` bytes once and without holes.
absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(
    std::string_view header, int64_t data_size);

// Numbers are copied out: a mapped file's would change, or be gone, when
// somebody writes to it. All messages begin with the path.
class SafetensorsFile {
 public:
  // NOT_FOUND if there is no such file, INVALID_ARGUMENT if it is another kind.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  absl::Span<const SafetensorsEntry> entries() const { return entries_; }

  // Null if there is none of this name.
  const SafetensorsEntry* Find(std::string_view name) const;

  // INVALID_ARGUMENT unless `entry`, one of entries() though perhaps with other
  // axes for as many numbers, is a table.
  absl::StatusOr<Table> Read(const SafetensorsEntry& entry);

 private:
  SafetensorsFile() = default;
  absl::Status ReadHeader();
  absl::Status ReadBytes(int64_t offset, std::string& out);

  std::string path_;
  std::ifstream stream_;
  std::vector<SafetensorsEntry> entries_;
  int64_t data_offset_ = 0;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_TABLE_SAFETENSORS_H_
