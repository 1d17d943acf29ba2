// SPDX-License-Identifier: Apache-2.0
#include "client/cli/table_file.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/cli/file_io.h"
#include "client/cli/report.h"
#include "core/file/regular_file.h"
#include "core/safetensors/safetensors.h"

namespace attnbias {
namespace {

using nlohmann::json;

constexpr absl::string_view kNpy = ".npy";
constexpr absl::string_view kSafetensors = ".safetensors";
// InlineTable's limit in the contract.
constexpr int64_t kMaxTableBytes = 2 << 20;
// Alignment of the data in both formats.
constexpr size_t kAlignment = 64;

constexpr absl::string_view kNpyMagic = "\x93NUMPY";
// Bounds the header in versions 1 and 2; NumPy never writes a larger one.
constexpr int64_t kMaxHeaderBytes = 64 << 10;
// Size of the length field at the beginning of a .safetensors file.
constexpr size_t kSizeBytes = 8;

// Returns INVALID_ARGUMENT if a table is too large for a request.
absl::Status CheckSize(int64_t bytes) {
  if (bytes <= kMaxTableBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("got a tensor of ", bytes, " bytes, want at most ", kMaxTableBytes,
                   " in a request; have the server mount larger ones (--tables)"));
}

absl::Status NotNpy(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("not a .npy file of version 1 or 2: ", why));
}

// Element types in .npy files. Learned tables never contain integers.
constexpr std::pair<v1::DataType, absl::string_view> kDescrs[] = {{v1::DATA_TYPE_F64, "<f8"},
                                                                  {v1::DATA_TYPE_F32, "<f4"},
                                                                  {v1::DATA_TYPE_F16, "<f2"},
                                                                  {v1::DATA_TYPE_I32, "<i4"}};

// Returns the size of an array in bytes. INVALID_ARGUMENT for a negative length or a size that does
// not fit in 63 bits.
absl::StatusOr<int64_t> SizeOf(const v1::InlineTable& table) {
  int64_t bytes = ElementSize(table.data_type());
  for (const int64_t length : table.shape()) {
    if (length < 0 || __builtin_mul_overflow(bytes, length, &bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape: got [", absl::StrJoin(table.shape(), ", "),
                       "], want nonnegative lengths and fewer than 2^63 bytes in total"));
    }
  }
  return bytes;
}

// Reads the header, which ends at byte `end`.
absl::StatusOr<std::string> ReadHeader(const RegularFile& file, int64_t* end) {
  // Magic number, version, and a two-byte length (four bytes in version 2).
  if (file.size() < 12) return NotNpy("it is too short");
  const auto start = file.Read(0, 12);
  if (!start.ok()) return start.status();
  if (!absl::StartsWith(*start, kNpyMagic)) {
    return NotNpy("it does not begin with the .npy magic number");
  }
  const int version = static_cast<unsigned char>((*start)[6]);
  if (version != 1 && version != 2) {
    return NotNpy(absl::StrCat("its version is ", version));
  }
  uint32_t size = 0;
  std::memcpy(&size, start->data() + 8, version == 1 ? 2 : 4);
  const int64_t begin = version == 1 ? 10 : 12;
  *end = begin + size;
  if (size > kMaxHeaderBytes || *end > file.size()) {
    return NotNpy(absl::StrCat("its header declares ", size, " bytes"));
  }
  return file.Read(begin, *end);
}

// Parses a Python dictionary literal, whose keys may be in any order.
absl::StatusOr<v1::InlineTable> ParseHeader(const std::string& header) {
  const json fields = json::parse(absl::StrReplaceAll(header, {{"'", "\""},
                                                               {"(", "["},
                                                               {")", "]"},
                                                               {",)", "]"},
                                                               {", )", "]"},
                                                               {",}", "}"},
                                                               {", }", "}"},
                                                               {"True", "true"},
                                                               {"False", "false"}}),
                                  nullptr, /*allow_exceptions=*/false);
  if (!fields.is_object()) return NotNpy("its header is not a dictionary");
  const json descr = fields.value("descr", json());
  const json order = fields.value("fortran_order", json());
  const json shape = fields.value("shape", json());
  if (!descr.is_string()) return NotNpy("no descr");
  v1::InlineTable table;
  for (const auto& [type, name] : kDescrs) {
    if (descr == std::string(name) && type != v1::DATA_TYPE_I32) table.set_data_type(type);
  }
  if (table.data_type() == v1::DATA_TYPE_UNSPECIFIED) {
    return absl::InvalidArgumentError(
        absl::StrCat("dtype: got ", descr.dump(), ", want \"<f8\", \"<f4\" or \"<f2\""));
  }
  if (order == true) {
    return absl::InvalidArgumentError(
        "order: got Fortran order, want C order (numpy.ascontiguousarray)");
  }
  if (order != false) return NotNpy("no fortran_order");
  if (!shape.is_array()) return NotNpy("no shape");
  for (const json& length : shape) {
    if (!length.is_number_integer()) {
      return NotNpy(absl::StrCat("its shape is ", shape.dump()));
    }
    table.add_shape(length.get<int64_t>());
  }
  return table;
}

// Reads a version 1 or 2 file with little-endian F64, F32 or F16 elements in C order.
absl::StatusOr<v1::InlineTable> ReadNpy(const RegularFile& file) {
  int64_t begin = 0;
  const auto header = ReadHeader(file, &begin);
  if (!header.ok()) return header.status();
  auto table = ParseHeader(*header);
  if (!table.ok()) return table.status();
  const int64_t have = file.size() - begin;
  const auto size = SizeOf(*table);
  if (!size.ok()) return size.status();
  if (*size != have) {
    return absl::InvalidArgumentError(absl::StrCat("got ", have, " bytes of data, want ", *size,
                                                   " for shape [",
                                                   absl::StrJoin(table->shape(), ", "), "]"));
  }
  if (absl::Status status = CheckSize(*size); !status.ok()) {
    return status;
  }
  auto data = file.Read(begin, file.size());
  if (!data.ok()) return data.status();
  table->set_data(*std::move(data));
  return table;
}

// Returns the bytes that precede the array's data. INVALID_ARGUMENT for BF16, which .npy cannot
// express.
absl::StatusOr<std::string> NpyHeader(const v1::TensorPart& part) {
  const auto* const descr =
      absl::c_find_if(kDescrs, [&](const auto& each) { return each.first == part.data_type(); });
  if (descr == std::end(kDescrs)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--out: .npy has no ", v1::DataType_Name(part.data_type()), "; write a .safetensors file"));
  }
  std::string header =
      absl::StrCat("{'descr': '", descr->second, "', 'fortran_order': False, 'shape': (",
                   absl::StrJoin(part.shape(), ", "), part.shape_size() == 1 ? "," : "", "), }");
  // Magic number, version and length take ten bytes, the newline one.
  const size_t unpadded = kNpyMagic.size() + 4 + header.size() + 1;
  header.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  header += '\n';
  const size_t size = header.size();
  const char prefix[] = {1, 0, static_cast<char>(size & 0xff), static_cast<char>(size >> 8)};
  return absl::StrCat(kNpyMagic, absl::string_view(prefix, sizeof(prefix)), header);
}

// Returns the number of rows, or of columns, in a window of query-key pairs.
int64_t LengthOf(const v1::PositionList& list, const v1::Range& range) {
  return list.positions_size() > 0 ? list.positions_size() : range.end() - range.begin();
}

// Returns the index of position 0 in a range of `length` positions that begins at `first`.
std::string IndexOfZero(int64_t first, int64_t length) {
  return first <= 0 && first > -length ? absl::StrCat(-first) : "none";
}

// Returns the metadata that docs/protocol.md specifies, in the form that the Python client uses.
json Metadata(const v1::TensorHeader& header) {
  const v1::TensorSpec& spec = header.resolved_spec();
  json metadata = {{"attnbias.fingerprint", header.fingerprint()},
                   {"attnbias.encoding_fingerprint", header.encoding_fingerprint()},
                   {"attnbias.resolved_spec", JsonOf(spec)}};
  if (!header.column_axes().empty()) {
    metadata["attnbias.column_axes"] = absl::StrJoin(header.column_axes(), ",");
  }
  const v1::PairExtent& pair = spec.pair();
  const int64_t queries = LengthOf(pair.query_positions(), pair.queries());
  const int64_t keys = LengthOf(pair.key_positions(), pair.keys());
  for (const v1::TensorPart& part : header.parts()) {
    if (part.form() == v1::FORM_TOEPLITZ || part.form() == v1::FORM_KEY_ROW) {
      metadata["attnbias.query_length"] = absl::StrCat(queries);
      metadata["attnbias.key_length"] = absl::StrCat(keys);
    }
    if (part.form() == v1::FORM_TOEPLITZ) {
      metadata["attnbias.diagonals.first_relative_position"] =
          absl::StrCat(part.first_relative_position());
      // Columns follow heads, if any, and relative positions.
      const bool has_columns = part.shape_size() > (pair.has_heads() ? 2 : 1);
      metadata["attnbias.diagonals.vectors"] = has_columns ? "true" : "false";
    }
    if (part.name() == "border" && spec.has_pair()) {
      metadata["attnbias.border.class_query"] =
          IndexOfZero(pair.query_offset() + pair.queries().begin(), queries);
      metadata["attnbias.border.class_key"] =
          IndexOfZero(pair.key_positions().positions().empty() ? pair.keys().begin()
                                                               : pair.key_positions().positions(0),
                      keys);
    }
  }
  return metadata;
}

absl::StatusOr<SafetensorsEntry> FindTensor(const SafetensorsFile& file, const std::string& name) {
  if (const SafetensorsEntry* entry = file.FindOrOnly(name)) return *entry;
  const auto add_name = [&](std::string* out, const SafetensorsEntry& entry) {
    absl::StrAppend(out, name.empty() ? ":" : "", entry.name);
  };
  const std::string names = absl::StrJoin(file.entries(), ", ", add_name);
  return absl::InvalidArgumentError(
      name.empty() ? absl::StrCat("got no tensor name, want one of ", names)
                   : absl::StrCat("tensor: got \"", name, "\", want one of ", names));
}

// Reads the tensor `name`, or the only one if `name` is empty.
absl::StatusOr<v1::InlineTable> ReadSafetensors(const SafetensorsFile& file,
                                                const std::string& name) {
  const auto tensor = FindTensor(file, name);
  if (!tensor.ok()) return tensor.status();
  v1::DataType type;
  if (!v1::DataType_Parse(absl::StrCat("DATA_TYPE_", tensor->dtype), &type) ||
      type == v1::DATA_TYPE_I32) {
    return absl::InvalidArgumentError(
        absl::StrCat("dtype: got \"", tensor->dtype, "\", want F64, F32, F16 or BF16"));
  }
  if (absl::Status status = CheckSize(tensor->bytes()); !status.ok()) {
    return status;
  }
  auto data = file.Read(*tensor);
  if (!data.ok()) return data.status();
  v1::InlineTable table;
  table.set_data_type(type);
  table.mutable_shape()->Add(tensor->shape.begin(), tensor->shape.end());
  table.set_data(*std::move(data));
  return table;
}

// Returns the bytes that precede the payload. Each part of `header` becomes a tensor with the same
// name; docs/protocol.md lists the metadata. The payload begins at a multiple of 64 bytes.
std::string SafetensorsHead(const v1::TensorHeader& header) {
  json description = {{"__metadata__", Metadata(header)}};
  for (const v1::TensorPart& part : header.parts()) {
    const std::string& type = v1::DataType_Name(part.data_type());
    description[part.name()] = {
        {"dtype", std::string(absl::StripPrefix(type, "DATA_TYPE_"))},
        {"shape", std::vector<int64_t>(part.shape().begin(), part.shape().end())},
        {"data_offsets", {part.offset(), part.offset() + part.size_bytes()}}};
  }
  std::string text = description.dump();
  while ((kSizeBytes + text.size()) % kAlignment != 0) text.push_back(' ');
  const uint64_t size = text.size();
  return absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&size), kSizeBytes), text);
}

absl::string_view AsText(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

absl::StatusOr<int> FindPart(const v1::TensorHeader& header, const std::string& name) {
  if (name.empty() && header.parts_size() == 1) return 0;
  std::vector<std::string> names;
  for (int i = 0; i < header.parts_size(); ++i) {
    if (header.parts(i).name() == name) return i;
    names.push_back(header.parts(i).name());
  }
  const std::string known = absl::StrJoin(names, ", ");
  if (!name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--part: got ", name, ", want one of ", known));
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
    return absl::InvalidArgumentError(
        absl::StrCat("got @", name, ", want @FILE.safetensors:TENSOR or @FILE.npy"));
  }
  absl::StatusOr<v1::InlineTable> table;
  if (npy) {
    auto file = RegularFile::Open(parts.path);
    if (!file.ok()) return file.status();
    table = ReadNpy(*file);
  } else {
    auto file = SafetensorsFile::Open(parts.path);
    if (!file.ok()) return file.status();
    table = ReadSafetensors(*file, parts.tensor);
  }
  if (table.ok()) return table;
  return absl::Status(table.status().code(), absl::StrCat(name, ": ", table.status().message()));
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
    return WriteFileAtomically(path, {SafetensorsHead(tensor.header()), AsText(tensor.bytes())});
  }
  const absl::StatusOr<int> index = FindPart(tensor.header(), part);
  if (!index.ok()) return index.status();
  const auto header = NpyHeader(tensor.header().parts(*index));
  if (!header.ok()) return header.status();
  return WriteFileAtomically(path, {*header, AsText(tensor.part(*index))});
}

}  // namespace attnbias
