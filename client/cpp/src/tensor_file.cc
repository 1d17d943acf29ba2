// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/tensor_file.h"

#include <google/protobuf/io/coded_stream.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "attnbias/internal/safetensors_head.h"
#include "client/cpp/src/header_check.h"
#include "core/checksum/crc32c.h"

namespace attnbias {
namespace {

using google::protobuf::io::CodedInputStream;
using nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr size_t kPayloadAlignment = 64;
constexpr char kHeader[] = "attnbias.header";
constexpr char kHeaderChecksum[] = "attnbias.header_crc32c";
constexpr char kChecksum[] = "attnbias.crc32c";

std::string Checksum(std::string_view bytes) {
  return absl::StrCat(
      absl::Hex(Crc32c(bytes.data(), bytes.size()), absl::kZeroPad8));
}

// A file's metadata; empty where it is none that the cache writes.
json MetadataIn(std::string_view text) {
  const json content = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto found = content.find("__metadata__");
  return found != content.end() ? *found : json();
}

std::string TextOf(const json& metadata, const char* name) {
  const auto found = metadata.find(name);
  return found != metadata.end() && found->is_string()
             ? found->get<std::string>()
             : "";
}

absl::StatusOr<v1::TensorHeader> HeaderIn(const json& metadata) {
  std::string bytes;
  v1::TensorHeader header;
  if (!absl::Base64Unescape(TextOf(metadata, kHeader), &bytes) ||
      !header.ParseFromString(bytes)) {
    return absl::DataLossError("it has no header");
  }
  if (Checksum(bytes) != TextOf(metadata, kHeaderChecksum)) {
    return absl::DataLossError("its header is not what its checksum says");
  }
  if (const absl::Status status =
          CheckHeader(header, std::numeric_limits<int64_t>::max());
      !status.ok()) {
    return status;
  }
  return header;
}

}  // namespace

absl::StatusOr<Tensor> ReadTensorFile(std::shared_ptr<const MappedFile> file,
                                      const std::string& fingerprint,
                                      bool verify) {
  const std::string_view bytes = file->bytes();
  if (bytes.size() < kLengthBytes) {
    return absl::DataLossError(absl::StrCat("it has ", bytes.size(), " bytes"));
  }
  uint64_t length = 0;
  CodedInputStream::ReadLittleEndian64FromArray(
      reinterpret_cast<const uint8_t*>(bytes.data()), &length);
  if (length > bytes.size() - kLengthBytes ||
      (kLengthBytes + length) % kPayloadAlignment != 0) {
    return absl::DataLossError(
        absl::StrCat("its JSON has ", length, " bytes of ", bytes.size()));
  }
  const json metadata = MetadataIn(bytes.substr(kLengthBytes, length));
  const std::string_view payload = bytes.substr(kLengthBytes + length);
  absl::StatusOr<v1::TensorHeader> header = HeaderIn(metadata);
  if (!header.ok()) return header.status();
  if (header->fingerprint() != fingerprint ||
      static_cast<uint64_t>(header->total_bytes()) != payload.size()) {
    return absl::DataLossError(
        absl::StrCat("its header is that of ", header->fingerprint(), ", of ",
                     header->total_bytes(), " bytes; it has ", payload.size()));
  }
  if (verify && Checksum(payload) != TextOf(metadata, kChecksum)) {
    return absl::DataLossError("its payload is not what its checksum says");
  }
  const auto* begin = reinterpret_cast<const std::byte*>(payload.data());
  return Tensor(*std::move(header),
                std::shared_ptr<const std::byte[]>(std::move(file), begin));
}

absl::StatusOr<std::string> TensorFileHead(const Tensor& tensor,
                                           const v1::Mask& mask) {
  const std::string header = tensor.header().SerializeAsString();
  const std::string_view payload(
      reinterpret_cast<const char*>(tensor.bytes().data()),
      tensor.bytes().size());
  return internal::SafetensorsHead(tensor.header(), mask,
                                   {{kHeader, absl::Base64Escape(header)},
                                    {kHeaderChecksum, Checksum(header)},
                                    {kChecksum, Checksum(payload)}});
}

}  // namespace attnbias
