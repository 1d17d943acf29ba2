// SPDX-License-Identifier: Apache-2.0
#include "core/safetensors/safetensors.h"

#include <algorithm>
#include <limits>
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
// Bound of the format.
constexpr int64_t kMaxHeaderBytes = 100'000'000;

// Bits of an element of every dtype of the format, since a file has more tensors than tables.
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

// Parses the header. A tree would not show a name that occurs twice.
absl::StatusOr<json> ParseHeader(std::string_view header) {
  absl::Status status;
  absl::flat_hash_set<std::string> tensors;
  absl::flat_hash_set<std::string> fields;  // of one tensor
  const auto keep = [&](int depth, json::parse_event_t event, json& value) {
    using Event = json::parse_event_t;
    if (event == Event::key) {
      const auto& name = value.get_ref<const std::string&>();
      if (depth == 1) fields.clear();
      if (!(depth == 1 ? tensors : fields).insert(name).second) {
        status.Update(NotSafetensors("its header has ", Quoted(name), " twice"));
      }
    } else if (depth > 2 && (event == Event::object_start || event == Event::array_start)) {
      status.Update(NotSafetensors("its header is nested too deep"));
    }
    return status.ok();
  };
  json parsed = json::parse(header, keep, /*allow_exceptions=*/false);
  ATTNBIAS_RETURN_IF_ERROR(status);
  if (!parsed.is_object() || header.front() != '{') {
    return NotSafetensors("its header is not a JSON object");
  }
  return parsed;
}

bool IsLength(const json& value) {
  return value.is_number_unsigned() &&
         value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()};
}

bool IsListOfLengths(const json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), IsLength);
}

absl::StatusOr<std::vector<SafetensorsEntry>> EntriesIn(const json& header) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& tensor : header.items()) {
    if (tensor.key() == "__metadata__") continue;
    const json& fields = tensor.value();
    const auto of = [&fields](const char* field) { return fields.value(field, json()); };
    if (!fields.is_object() || fields.size() != 3 || !of("dtype").is_string() ||
        !IsListOfLengths(of("shape")) || !IsListOfLengths(of("data_offsets")) ||
        of("data_offsets").size() != 2) {
      return NotSafetensors(Quoted(tensor.key()),
                            ": want a dtype, a shape and two data_offsets below 2^63");
    }
    entries.push_back({.name = tensor.key(),
                       .dtype = fields["dtype"],
                       .shape = fields["shape"],
                       .begin = fields["data_offsets"][0],
                       .end = fields["data_offsets"][1]});
  }
  return entries;
}

// Returns the bytes of the shape.
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
  return NotSafetensors(Quoted(entry.name), ": shape [", absl::StrJoin(entry.shape, ", "),
                        "] has no size in bytes");
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
                            ", where the tensor before it ends");
    }
    end = entry.end;
  }
  if (end == data_size) return absl::OkStatus();
  return NotSafetensors("its tensors take ", end, " bytes, its data ", data_size);
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
  ATTNBIAS_ASSIGN_OR_RETURN(const json parsed, ParseHeader(header));
  ATTNBIAS_ASSIGN_OR_RETURN(std::vector<SafetensorsEntry> entries, EntriesIn(parsed));
  ATTNBIAS_RETURN_IF_ERROR(CheckPlaces(entries, data_size));
  std::ranges::sort(entries, {}, &SafetensorsEntry::name);
  return entries;
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
