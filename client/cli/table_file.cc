// SPDX-License-Identifier: Apache-2.0
#include "client/cli/table_file.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "attnbias/internal/printable.h"
#include "client/cli/file_io.h"
#include "client/cli/npy.h"
#include "client/cli/safetensors.h"
#include "core/file/regular_file.h"
#include "core/safetensors/safetensors.h"

namespace attnbias {
namespace {

constexpr absl::string_view kNpy = ".npy";
constexpr absl::string_view kSafetensors = ".safetensors";
// InlineTable's limit in the contract.
constexpr int64_t kMaxTableBytes = 2 << 20;

absl::string_view AsText(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

absl::StatusOr<int> FindPart(const v1::TensorHeader& header,
                             const std::string& name) {
  if (name.empty() && header.parts_size() == 1) return 0;
  std::vector<std::string> names;
  for (int i = 0; i < header.parts_size(); ++i) {
    if (header.parts(i).name() == name) return i;
    names.push_back(internal::Excerpt(header.parts(i).name()));
  }
  const std::string known = absl::StrJoin(names, ", ");
  if (!name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--part: got ", name, ", want one of ", known));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--out: .npy holds one part and the tensor has ", known,
                   "; choose one with --part, or write a .safetensors file"));
}

}  // namespace

absl::StatusOr<v1::InlineTable> ReadTableFile(const std::string& name) {
  const SafetensorsPlace parts = SplitSafetensorsPlace(name);
  const bool npy = absl::EndsWith(parts.path, kNpy);
  if (!npy && !absl::EndsWith(parts.path, kSafetensors)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "got @", name, ", want @FILE.safetensors:TENSOR or @FILE.npy"));
  }
  absl::StatusOr<v1::InlineTable> table;
  if (npy) {
    auto file = RegularFile::Open(parts.path);
    if (!file.ok()) return file.status();
    table = ReadNpy(*file, kMaxTableBytes);
  } else {
    auto file = SafetensorsFile::Open(parts.path);
    if (!file.ok()) return file.status();
    table = ReadSafetensors(*file, parts.tensor, kMaxTableBytes);
  }
  if (table.ok()) return table;
  return absl::Status(table.status().code(),
                      absl::StrCat(name, ": ", table.status().message()));
}

absl::Status CheckOutput(const std::string& path, v1::DataType type) {
  if (path == kStandardOutput || absl::EndsWith(path, kSafetensors)) {
    return absl::OkStatus();
  }
  if (!absl::EndsWith(path, kNpy)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--out: got ", path,
                     ", want a name ending in .npy or .safetensors, or -"));
  }
  if (type == v1::DATA_TYPE_BF16) {
    return absl::InvalidArgumentError(
        "--out: .npy has no bf16; write a .safetensors file");
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const std::byte>> BareBytes(const Tensor& tensor,
                                                      const std::string& part) {
  if (part.empty()) return tensor.bytes();
  const absl::StatusOr<int> index = FindPart(tensor.header(), part);
  if (!index.ok()) return index.status();
  return tensor.part(*index);
}

absl::Status WriteTensorFile(const Tensor& tensor, const std::string& path,
                             const std::string& part) {
  if (!absl::EndsWith(path, kNpy)) {
    const auto header = SafetensorsHead(tensor.header());
    if (!header.ok()) return header.status();
    return WriteFileAtomically(path, {*header, AsText(tensor.bytes())});
  }
  const absl::StatusOr<int> index = FindPart(tensor.header(), part);
  if (!index.ok()) return index.status();
  const auto header = NpyHeader(tensor.header().parts(*index));
  if (!header.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--out: ", header.status().message()));
  }
  return WriteFileAtomically(path, {*header, AsText(tensor.part(*index))});
}

}  // namespace attnbias
