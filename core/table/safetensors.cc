// SPDX-License-Identifier: Apache-2.0
#include "core/table/safetensors.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"

namespace attnbias {
namespace {

using nlohmann::json;

constexpr int64_t kLengthBytes = 8;
// The format's own bound on a header.
constexpr int64_t kMaxHeaderBytes = 100'000'000;
constexpr std::string_view kMetadata = "__metadata__";
constexpr size_t kMaxTableAxes = 3;

struct Dtype {
  std::string_view name;
  int bits;
  std::optional<DataType> data_type;
};

// All that the format has, so that a model's other tensors are understood.
constexpr Dtype kDtypes[] = {
    {"F64", 64, DataType::kF64},  {"F32", 32, DataType::kF32},
    {"F16", 16, DataType::kF16},  {"BF16", 16, DataType::kBF16},
    {"BOOL", 8, std::nullopt},    {"F4", 4, std::nullopt},
    {"F6_E2M3", 6, std::nullopt}, {"F6_E3M2", 6, std::nullopt},
    {"F8_E4M3", 8, std::nullopt}, {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2", 8, std::nullopt}, {"F8_E5M2FNUZ", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt}, {"C64", 64, std::nullopt},
    {"I8", 8, std::nullopt},      {"I16", 16, std::nullopt},
    {"I32", 32, std::nullopt},    {"I64", 64, std::nullopt},
    {"U8", 8, std::nullopt},      {"U16", 16, std::nullopt},
    {"U32", 32, std::nullopt},    {"U64", 64, std::nullopt},
};

const Dtype* FindDtype(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kDtypes), std::end(kDtypes),
                   [name](const Dtype& dtype) { return dtype.name == name; });
  return found == std::end(kDtypes) ? nullptr : found;
}

template <typename... Parts>
absl::Status NotSafetensors(const Parts&... parts) {
  return Invalid("not a .safetensors file: ", parts...);
}

// A name out of the file, made safe to print.
std::string Quoted(std::string_view name) {
  constexpr size_t kMost = 200;
  const std::string_view shown = name.substr(0, kMost);
  return absl::StrCat("'", absl::CHexEscape({shown.data(), shown.size()}),
                      shown.size() < name.size() ? "..." : "", "'");
}

// Takes the header as it is read, so that nothing is built that the format does
// not have: no other depth, no other kind of value, no name twice.
class HeaderReader final : public json::json_sax_t {
 public:
  absl::Status status = absl::OkStatus();
  std::vector<SafetensorsEntry> entries;

  bool start_object(size_t /*size*/) override {
    if (depth_ == 0) return Enter();
    if (depth_ > 1 || in_array_) return Refuse("an object inside a tensor");
    given_.clear();
    return Enter();
  }

  bool end_object() override {
    if (depth_ > 1 && !in_metadata_ && given_.size() != kFields) {
      return Refuse("want dtype, shape and data_offsets");
    }
    --depth_;
    return true;
  }

  bool key(std::string& name) override {
    if (depth_ == 1) {
      if (!names_.insert(name).second) {
        return Refuse(absl::StrCat("two tensors ", Quoted(name)));
      }
      in_metadata_ = name == kMetadata;
      if (!in_metadata_) entries.emplace_back().name = name;
      return true;
    }
    if (in_metadata_) return true;
    if (name != "dtype" && name != "shape" && name != "data_offsets") {
      return Refuse(absl::StrCat("unknown field ", Quoted(name)));
    }
    field_ = name;
    return given_.insert(name).second || Refuse("a field twice");
  }

  bool string(std::string& value) override {
    if (depth_ == 2 && in_metadata_) return true;
    if (depth_ != 2 || in_array_ || field_ != "dtype") {
      return Refuse("a string out of place");
    }
    entries.back().dtype = value;
    return true;
  }

  bool start_array(size_t /*size*/) override {
    if (depth_ != 2 || in_array_ || in_metadata_ || field_ == "dtype") {
      return Refuse("an array out of place");
    }
    in_array_ = true;
    offsets_.clear();
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (!in_array_) return Refuse("a number out of place");
    const auto number = static_cast<int64_t>(value);
    if (number < 0) return Refuse("a number beyond 63 bits");
    (field_ == "shape" ? entries.back().shape : offsets_).push_back(number);
    return true;
  }

  bool end_array() override {
    in_array_ = false;
    if (field_ == "shape") return true;
    if (offsets_.size() != 2) return Refuse("want two data_offsets");
    entries.back().bytes = {offsets_[0], offsets_[1]};
    return true;
  }

  bool null() override { return Refuse("null"); }
  bool boolean(bool /*value*/) override { return Refuse("a boolean"); }
  bool number_integer(int64_t /*value*/) override {
    return Refuse("a negative number");
  }
  bool number_float(double /*value*/, const std::string& text) override {
    return Refuse(absl::StrCat("the number ", Quoted(text)));
  }
  bool binary(json::binary_t& /*value*/) override { return Refuse("binary"); }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const json::exception& /*error*/) override {
    status = NotSafetensors("its header is no JSON at byte ", position);
    return false;
  }

 private:
  static constexpr size_t kFields = 3;

  bool Enter() {
    ++depth_;
    return true;
  }

  bool Refuse(std::string_view what) {
    std::string place = "its header";
    if (depth_ > 1 && !in_metadata_) {
      place = Quoted(entries.back().name);
    }
    status = NotSafetensors(place, ": ", std::string(what));
    return false;
  }

  int depth_ = 0;  // of objects
  bool in_metadata_ = false;
  bool in_array_ = false;
  std::string field_;
  std::vector<int64_t> offsets_;
  absl::flat_hash_set<std::string> given_;  // fields of this tensor
  absl::flat_hash_set<std::string> names_;
};

// Bytes that the shape takes.
absl::StatusOr<int64_t> SizeOfEntry(const SafetensorsEntry& entry) {
  const Dtype* const dtype = FindDtype(entry.dtype);
  if (dtype == nullptr) {
    return NotSafetensors(Quoted(entry.name), ": unknown dtype ",
                          Quoted(entry.dtype));
  }
  int64_t bits = dtype->bits;
  bool fits = true;
  for (const int64_t length : entry.shape) {
    fits = fits && !__builtin_mul_overflow(bits, length, &bits);
  }
  if (!fits || bits % 8 != 0) {
    return NotSafetensors(Quoted(entry.name), ": shape [",
                          absl::StrJoin(entry.shape, ", "),
                          "] has no size in bytes");
  }
  return bits / 8;
}

absl::Status CheckPlaces(std::vector<SafetensorsEntry>& entries,
                         int64_t data_size) {
  std::sort(entries.begin(), entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::pair(a.bytes.begin, a.bytes.end) <
                     std::pair(b.bytes.begin, b.bytes.end);
            });
  int64_t end = 0;
  for (const SafetensorsEntry& entry : entries) {
    ATTNBIAS_ASSIGN_OR_RETURN(const int64_t size, SizeOfEntry(entry));
    if (entry.bytes.begin != end || entry.bytes.end < end ||
        entry.bytes.end - end != size) {
      return NotSafetensors(Quoted(entry.name), ": data_offsets [",
                            entry.bytes.begin, ", ", entry.bytes.end,
                            "], want ", size, " bytes from ", end,
                            ", where the tensor before it ends");
    }
    end = entry.bytes.end;
  }
  if (end == data_size) return absl::OkStatus();
  return NotSafetensors("its tensors take ", end, " bytes, its data ",
                        data_size);
}

}  // namespace

bool SafetensorsEntry::IsTable() const {
  const Dtype* const known = FindDtype(dtype);
  return known != nullptr && known->data_type.has_value() && !shape.empty() &&
         shape.size() <= kMaxTableAxes && bytes.size() > 0;
}

absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(
    std::string_view header, int64_t data_size) {
  if (header.empty() || header.front() != '{') {
    return NotSafetensors("its header is no JSON object");
  }
  HeaderReader reader;
  try {
    if (!json::sax_parse(header, &reader)) return reader.status;
  } catch (const std::exception& error) {
    return NotSafetensors("its header cannot be read: ", error.what());
  }
  ATTNBIAS_RETURN_IF_ERROR(CheckPlaces(reader.entries, data_size));
  std::sort(reader.entries.begin(), reader.entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return a.name < b.name;
            });
  return std::move(reader.entries);
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  }
  SafetensorsFile file;
  file.path_ = path;
  file.stream_.open(path, std::ios::binary);
  if (!file.stream_) {
    return Invalid(path, ": cannot be read");
  }
  ATTNBIAS_RETURN_IF_ERROR(Located(path, file.ReadHeader()));
  return file;
}

absl::Status SafetensorsFile::ReadHeader() {
  stream_.seekg(0, std::ios::end);
  const int64_t size = stream_.tellg();
  if (size < kLengthBytes) return NotSafetensors("it has ", size, " bytes");
  std::string length(kLengthBytes, '\0');
  ATTNBIAS_RETURN_IF_ERROR(ReadBytes(0, length));
  uint64_t header_size = 0;
  for (int i = kLengthBytes; i-- > 0;) {
    header_size = header_size << 8 | static_cast<unsigned char>(length[i]);
  }
  const int64_t most = std::min(kMaxHeaderBytes, size - kLengthBytes);
  if (header_size > static_cast<uint64_t>(most)) {
    return NotSafetensors("its header claims ", header_size,
                          " bytes, want at most ", most);
  }
  std::string header(header_size, '\0');
  ATTNBIAS_RETURN_IF_ERROR(ReadBytes(kLengthBytes, header));
  data_offset_ = kLengthBytes + static_cast<int64_t>(header_size);
  ATTNBIAS_ASSIGN_OR_RETURN(
      entries_, ParseSafetensorsHeader(header, size - data_offset_));
  return absl::OkStatus();
}

absl::Status SafetensorsFile::ReadBytes(int64_t offset, std::string& out) {
  stream_.clear();
  stream_.seekg(offset);
  stream_.read(out.data(), static_cast<std::streamsize>(out.size()));
  if (stream_) return absl::OkStatus();
  return Invalid("ended at byte ", offset + stream_.gcount(), ", want ",
                 offset + static_cast<int64_t>(out.size()));
}

const SafetensorsEntry* SafetensorsFile::Find(std::string_view name) const {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const SafetensorsEntry& entry, std::string_view key) {
                         return entry.name < key;
                       });
  return found != entries_.end() && found->name == name ? &*found : nullptr;
}

absl::StatusOr<Table> SafetensorsFile::Read(const SafetensorsEntry& entry) {
  const std::string place = absl::StrCat(path_, ":", entry.name);
  if (!entry.IsTable()) {
    return Invalid(place, ": got ", entry.dtype, " [",
                   absl::StrJoin(entry.shape, ", "),
                   "], want one to three axes of F64, F32, F16 or BF16");
  }
  auto bytes = std::make_shared<std::string>(entry.bytes.size(), '\0');
  ATTNBIAS_RETURN_IF_ERROR(
      Located(place, ReadBytes(data_offset_ + entry.bytes.begin, *bytes)));
  absl::StatusOr<Table> table = Table::View(*FindDtype(entry.dtype)->data_type,
                                            entry.shape, *bytes, bytes);
  if (!table.ok()) return Located(place, table.status());
  return table;
}

}  // namespace attnbias
