// SPDX-License-Identifier: Apache-2.0
#include "core/safetensors/safetensors.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/errors.h"

namespace attnbias {
namespace {

using nlohmann::json;

constexpr int64_t kLengthBytes = 8;
// The format's own limit.
constexpr int64_t kMaxHeaderBytes = 100'000'000;

// Bits per element for every dtype in the format, since a file may contain tensors other than
// tables.
constexpr std::pair<std::string_view, int> kDtypes[] = {
    {"F64", 64},    {"F32", 32},        {"F16", 16},    {"BF16", 16},   {"BOOL", 8},
    {"F4", 4},      {"F6_E2M3", 6},     {"F6_E3M2", 6}, {"F8_E4M3", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2", 8}, {"F8_E5M2FNUZ", 8}, {"F8_E8M0", 8}, {"C64", 64},    {"I8", 8},
    {"I16", 16},    {"I32", 32},        {"I64", 64},    {"U8", 8},      {"U16", 16},
    {"U32", 32},    {"U64", 64},
};

template <typename... Parts>
absl::Status NotSafetensors(const Parts&... parts) {
  return Invalid("not a .safetensors file: ", parts...);
}

// Makes a name from the file safe to print.
std::string Quoted(std::string_view name) {
  const std::string_view shown = name.substr(0, 200);
  return absl::StrCat("'", absl::CHexEscape({shown.data(), shown.size()}),
                      shown.size() < name.size() ? "..." : "", "'");
}

// Parses the header, and stops at anything that the format forbids (other depths, other value
// types, repeated names) instead of building it.
class HeaderReader final : public json::json_sax_t {
 public:
  absl::Status status = absl::OkStatus();
  std::vector<SafetensorsEntry> entries;

  bool start_object(size_t /*size*/) override {
    if (depth_ > 1 || in_array_) return Refuse("an object inside a tensor");
    given_.clear();
    ++depth_;
    return true;
  }

  bool end_object() override {
    if (in_tensor() && given_.size() != std::size(kFields)) {
      return Refuse("want dtype, shape and data_offsets");
    }
    --depth_;
    return true;
  }

  bool key(std::string& name) override {
    if (depth_ == 1) {
      if (!names_.insert(name).second)
        return Refuse(absl::StrCat("two tensors named ", Quoted(name)));
      in_metadata_ = name == "__metadata__";
      if (!in_metadata_) entries.emplace_back().name = name;
      return true;
    }
    if (in_metadata_) return true;
    if (std::ranges::find(kFields, name) == std::end(kFields)) {
      return Refuse(absl::StrCat("unknown field ", Quoted(name)));
    }
    field_ = name;
    return given_.insert(name).second || Refuse("a field twice");
  }

  bool string(std::string& value) override {
    if (depth_ == 2 && in_metadata_) return true;
    if (depth_ != 2 || in_array_ || field_ != "dtype") return Refuse("a misplaced string");
    entries.back().dtype = value;
    return true;
  }

  bool start_array(size_t /*size*/) override {
    if (!in_tensor() || in_array_ || field_ == "dtype") return Refuse("a misplaced array");
    in_array_ = true;
    offsets_.clear();
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (!in_array_) return Refuse("a misplaced number");
    const auto number = static_cast<int64_t>(value);
    if (number < 0) return Refuse("a number that does not fit in 63 bits");
    (field_ == "shape" ? entries.back().shape : offsets_).push_back(number);
    return true;
  }

  bool end_array() override {
    in_array_ = false;
    if (field_ == "shape") return true;
    if (offsets_.size() != 2) return Refuse("want two data_offsets");
    entries.back().begin = offsets_[0];
    entries.back().end = offsets_[1];
    return true;
  }

  bool null() override { return Refuse("null"); }
  bool boolean(bool /*value*/) override { return Refuse("a boolean"); }
  bool number_integer(int64_t /*value*/) override { return Refuse("a negative number"); }
  bool number_float(double /*value*/, const std::string& text) override {
    return Refuse(absl::StrCat("the number ", Quoted(text)));
  }
  bool binary(json::binary_t& /*value*/) override { return Refuse("binary"); }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const json::exception& /*error*/) override {
    status = NotSafetensors("its header is not valid JSON: error at byte ", position);
    return false;
  }

 private:
  static constexpr std::string_view kFields[] = {"dtype", "shape", "data_offsets"};

  bool in_tensor() const { return depth_ == 2 && !in_metadata_; }

  bool Refuse(std::string_view what) {
    status = NotSafetensors(in_tensor() ? Quoted(entries.back().name) : "its header", ": ",
                            std::string(what));
    return false;
  }

  int depth_ = 0;  // depth of objects
  bool in_metadata_ = false;
  bool in_array_ = false;
  std::string field_;
  std::vector<int64_t> offsets_;
  absl::flat_hash_set<std::string> given_;  // fields of this tensor
  absl::flat_hash_set<std::string> names_;
};

// Returns the size in bytes that the entry's dtype and shape imply.
absl::StatusOr<int64_t> SizeOfEntry(const SafetensorsEntry& entry) {
  const auto* const dtype =
      std::ranges::find(kDtypes, entry.dtype, [](const auto& known) { return known.first; });
  if (dtype == std::end(kDtypes)) {
    return NotSafetensors(Quoted(entry.name), ": unknown dtype ", Quoted(entry.dtype));
  }
  int64_t bits = dtype->second;
  bool fits = true;
  for (const int64_t length : entry.shape) {
    fits = fits && !__builtin_mul_overflow(bits, length, &bits);
  }
  if (fits && bits % 8 == 0) return bits / 8;
  return NotSafetensors(Quoted(entry.name), ": the size of shape [",
                        absl::StrJoin(entry.shape, ", "),
                        "] overflows or is not a whole number of bytes");
}

absl::Status CheckPlaces(std::vector<SafetensorsEntry>& entries, int64_t data_size) {
  std::ranges::sort(
      entries, {}, [](const SafetensorsEntry& entry) { return std::pair(entry.begin, entry.end); });
  int64_t end = 0;
  for (const SafetensorsEntry& entry : entries) {
    ATTNBIAS_ASSIGN_OR_RETURN(const int64_t size, SizeOfEntry(entry));
    if (entry.begin != end || entry.end < end || entry.end - end != size) {
      return NotSafetensors(Quoted(entry.name), ": data_offsets [", entry.begin, ", ", entry.end,
                            "], want ", size, " bytes from ", end,
                            ", where the previous tensor ends");
    }
    end = entry.end;
  }
  if (end == data_size) return absl::OkStatus();
  return NotSafetensors("its tensors need ", end, " bytes, but its data has ", data_size);
}

}  // namespace

SafetensorsPlace SplitSafetensorsPlace(const std::string& text) {
  constexpr std::string_view kColon = ".safetensors:";
  const size_t begin = text.find(kColon);
  if (begin == std::string::npos) return {text, ""};
  const size_t end = begin + kColon.size();
  return {text.substr(0, end - 1), text.substr(end)};
}

absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(std::string_view header,
                                                                     int64_t data_size) {
  if (header.empty() || header.front() != '{') {
    return NotSafetensors("its header is not a JSON object");
  }
  HeaderReader reader;
  try {
    if (!json::sax_parse(header, &reader)) return reader.status;
  } catch (const std::exception& error) {
    return NotSafetensors("its header cannot be read: ", error.what());
  }
  ATTNBIAS_RETURN_IF_ERROR(CheckPlaces(reader.entries, data_size));
  std::ranges::sort(reader.entries, {}, &SafetensorsEntry::name);
  return std::move(reader.entries);
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path,
                                                      const std::string& folder) {
  ATTNBIAS_ASSIGN_OR_RETURN(RegularFile opened, RegularFile::Open(path, folder));
  SafetensorsFile file(std::move(opened));
  if (absl::Status status = file.ReadHeader(); !status.ok()) return Located(path, status);
  return file;
}

absl::Status SafetensorsFile::ReadHeader() {
  const int64_t size = file_.size();
  if (size < kLengthBytes) {
    return NotSafetensors("it is too short: got ", size, " bytes, want at least ", kLengthBytes);
  }
  ATTNBIAS_ASSIGN_OR_RETURN(const std::string length, file_.Read(0, kLengthBytes));
  uint64_t header_size = 0;
  for (int i = kLengthBytes; i-- > 0;) {
    header_size = header_size << 8 | static_cast<unsigned char>(length[i]);
  }
  const int64_t most = std::min(kMaxHeaderBytes, size - kLengthBytes);
  if (header_size > static_cast<uint64_t>(most)) {
    return NotSafetensors("its header declares ", header_size, " bytes, want at most ", most);
  }
  data_offset_ = kLengthBytes + static_cast<int64_t>(header_size);
  ATTNBIAS_ASSIGN_OR_RETURN(const std::string header, file_.Read(kLengthBytes, data_offset_));
  ATTNBIAS_ASSIGN_OR_RETURN(entries_, ParseSafetensorsHeader(header, size - data_offset_));
  return absl::OkStatus();
}

absl::StatusOr<std::string> SafetensorsFile::Read(const SafetensorsEntry& entry) const {
  return file_.Read(data_offset_ + entry.begin, data_offset_ + entry.end);
}

const SafetensorsEntry* SafetensorsFile::Find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(entries_, name, {}, &SafetensorsEntry::name);
  return found != entries_.end() && found->name == name ? &*found : nullptr;
}

const SafetensorsEntry* SafetensorsFile::FindOrOnly(std::string_view name) const {
  return name.empty() && entries_.size() == 1 ? &entries_.front() : Find(name);
}

}  // namespace attnbias
