// SPDX-License-Identifier: Apache-2.0
#include "client/cli/npy.h"

#include <cstdint>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "attnbias/tensor.h"
#include "client/cli/file_io.h"

namespace attnbias {
namespace {

constexpr absl::string_view kMagic = "\x93NUMPY";
// Of versions 1 and 2. A larger header is neither ours nor NumPy's.
constexpr int64_t kMaxHeaderBytes = 64 << 10;
// Data begin at a multiple of it.
constexpr size_t kAlignment = 64;

absl::Status NotNpy(absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("not a .npy file of version 1 or 2: ", why));
}

absl::StatusOr<v1::DataType> DataTypeOf(absl::string_view descr) {
  if (descr == "<f8") return v1::DATA_TYPE_F64;
  if (descr == "<f4") return v1::DATA_TYPE_F32;
  if (descr == "<f2") return v1::DATA_TYPE_F16;
  return absl::InvalidArgumentError(absl::StrCat(
      "dtype: got \"", descr, "\", want \"<f8\", \"<f4\" or \"<f2\""));
}

absl::StatusOr<std::string> DescrOf(v1::DataType type) {
  switch (type) {
    case v1::DATA_TYPE_F64:
      return "<f8";
    case v1::DATA_TYPE_F32:
      return "<f4";
    case v1::DATA_TYPE_F16:
      return "<f2";
    case v1::DATA_TYPE_I32:
      return "<i4";
    default:
      return absl::InvalidArgumentError(
          absl::StrCat(".npy has no ", v1::DataType_Name(type),
                       "; write a .safetensors file"));
  }
}

// Returns the bytes of an array. INVALID_ARGUMENT for a length below 0 or a
// size that does not fit in 63 bits.
absl::StatusOr<int64_t> SizeOf(const v1::InlineTable& table) {
  int64_t bytes = ElementSize(table.data_type());
  for (const int64_t length : table.shape()) {
    if (length < 0 || __builtin_mul_overflow(bytes, length, &bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape: got [", absl::StrJoin(table.shape(), ", "),
                       "], want lengths from 0 whose bytes fit in 63 bits"));
    }
  }
  return bytes;
}

struct HeaderPlace {
  int64_t offset;
  int64_t size;
};

absl::StatusOr<HeaderPlace> FindHeader(const RegularFile& file) {
  if (file.size() < 10) return NotNpy("it is too short");
  const auto start = file.Read(0, 10);
  if (!start.ok()) return start.status();
  if (!absl::StartsWith(*start, kMagic)) {
    return NotNpy("it does not begin with its magic number");
  }
  const auto byte = [](absl::string_view from, size_t at) {
    return static_cast<int64_t>(static_cast<unsigned char>(from[at]));
  };
  HeaderPlace place{10, byte(*start, 8) | byte(*start, 9) << 8};
  const int64_t version = byte(*start, 6);
  if (version == 2) {
    if (file.size() < 12) return NotNpy("it is too short");
    const auto rest = file.Read(8, 12);
    if (!rest.ok()) return rest.status();
    place = {12, byte(*rest, 0) | byte(*rest, 1) << 8 | byte(*rest, 2) << 16 |
                     byte(*rest, 3) << 24};
  } else if (version != 1) {
    return NotNpy(absl::StrCat("its version is ", version));
  }
  if (place.size > kMaxHeaderBytes || place.size > file.size() - place.offset) {
    return NotNpy(absl::StrCat("its header claims ", place.size, " bytes"));
  }
  return place;
}

// What follows `'key':` in the header, a Python dictionary literal whose keys
// come in any order; empty if nothing does.
absl::string_view ValueOf(absl::string_view header, absl::string_view key) {
  const std::string quoted = absl::StrCat("'", key, "'");
  const size_t at = header.find(quoted);
  if (at == absl::string_view::npos) return "";
  header = absl::StripLeadingAsciiWhitespace(header.substr(at + quoted.size()));
  if (!absl::ConsumePrefix(&header, ":")) return "";
  return absl::StripLeadingAsciiWhitespace(header);
}

// What stands between `open` and `close` at the front of a value.
std::optional<absl::string_view> Between(absl::string_view value, char open,
                                         char close) {
  if (value.empty() || value[0] != open) return std::nullopt;
  const size_t end = value.find(close, 1);
  if (end == absl::string_view::npos) return std::nullopt;
  return value.substr(1, end - 1);
}

absl::StatusOr<v1::InlineTable> ParseHeader(const std::string& header) {
  v1::InlineTable table;
  const auto descr = Between(ValueOf(header, "descr"), '\'', '\'');
  if (!descr.has_value()) return NotNpy("no descr");
  const auto type = DataTypeOf(*descr);
  if (!type.ok()) return type.status();
  table.set_data_type(*type);
  const absl::string_view order = ValueOf(header, "fortran_order");
  if (absl::StartsWith(order, "True")) {
    return absl::InvalidArgumentError(
        "order: got Fortran's, want C's (numpy.ascontiguousarray)");
  }
  if (!absl::StartsWith(order, "False")) return NotNpy("no fortran_order");
  const auto shape = Between(ValueOf(header, "shape"), '(', ')');
  if (!shape.has_value()) return NotNpy("no shape");
  for (const absl::string_view length :
       absl::StrSplit(*shape, ',', absl::SkipWhitespace())) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(length, &value)) {
      return NotNpy(absl::StrCat("its shape is (", *shape, ")"));
    }
    table.add_shape(value);
  }
  return table;
}

}  // namespace

absl::StatusOr<v1::InlineTable> ReadNpy(const RegularFile& file,
                                        int64_t max_bytes) {
  const auto place = FindHeader(file);
  if (!place.ok()) return place.status();
  const int64_t begin = place->offset + place->size;
  const auto header = file.Read(place->offset, begin);
  if (!header.ok()) return header.status();
  auto table = ParseHeader(*header);
  if (!table.ok()) return table.status();
  const int64_t have = file.size() - begin;
  const auto size = SizeOf(*table);
  if (!size.ok()) return size.status();
  if (*size != have) {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", have, " bytes of data, want ", *size,
                     " for shape [", absl::StrJoin(table->shape(), ", "), "]"));
  }
  if (absl::Status status = CheckAtMost(*size, max_bytes); !status.ok()) {
    return status;
  }
  auto data = file.Read(begin, file.size());
  if (!data.ok()) return data.status();
  table->set_data(*std::move(data));
  return table;
}

absl::StatusOr<std::string> NpyHeader(const v1::TensorPart& part) {
  const auto descr = DescrOf(part.data_type());
  if (!descr.ok()) return descr.status();
  std::string header = absl::StrCat("{'descr': '", *descr,
                                    "', 'fortran_order': False, 'shape': (",
                                    absl::StrJoin(part.shape(), ", "),
                                    part.shape_size() == 1 ? "," : "", "), }");
  // Magic number, version and length are ten bytes, the newline is one.
  const size_t unpadded = kMagic.size() + 4 + header.size() + 1;
  header.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  header += '\n';
  const size_t size = header.size();
  const char prefix[] = {1, 0, static_cast<char>(size & 0xff),
                         static_cast<char>(size >> 8)};
  return absl::StrCat(kMagic, absl::string_view(prefix, sizeof(prefix)),
                      header);
}

}  // namespace attnbias
