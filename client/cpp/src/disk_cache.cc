// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/disk_cache.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <openssl/evp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/src/header_check.h"
#include "client/cpp/src/mapped_file.h"
#include "core/checksum/crc32c.h"

namespace attnbias {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;
using nlohmann::json;

constexpr char kVariable[] = "ATTNBIAS_CACHE_DIR";
constexpr char kKeyPrefix[] = "attnbias request 1\n";
constexpr size_t kLengthBytes = 8;
constexpr size_t kPayloadAlignment = 64;
constexpr size_t kNameDigits = 64;
constexpr size_t kMostPasswdBytes = 16384;

// That of a user, or of "" of whoever runs this; "" where there is none.
std::string HomeOf(const std::string& user) {
  const char* const named = std::getenv("HOME");
  if (user.empty() && named != nullptr) return named;
  passwd entry = {};
  passwd* found = nullptr;
  std::vector<char> text(kMostPasswdBytes);
  if (user.empty()) {
    getpwuid_r(getuid(), &entry, text.data(), text.size(), &found);
  } else {
    getpwnam_r(user.c_str(), &entry, text.data(), text.size(), &found);
  }
  return found != nullptr ? found->pw_dir : "";
}

std::string Checksum(std::string_view bytes) {
  return absl::StrCat(
      absl::Hex(Crc32c(bytes.data(), bytes.size()), absl::kZeroPad8));
}

bool IsFingerprint(std::string_view text) {
  return text.size() == kNameDigits &&
         text.find_first_not_of("0123456789abcdef") == text.npos;
}

// What a line that is one begins with.
std::optional<std::string> FingerprintIn(const std::string& line) {
  static const auto* const form =
      new std::regex("([0-9a-f]{64}) [0-9]{1,19} [0-9]{1,19} [0-9]{1,20}\n");
  std::smatch match;
  if (!std::regex_match(line, match, *form)) return std::nullopt;
  return match[1].str();
}

std::string LineOf(const std::string& fingerprint, const struct stat& status) {
  const int64_t time =
      int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  return absl::StrCat(fingerprint, " ", status.st_size, " ", time, " ",
                      status.st_ino, "\n");
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

std::optional<v1::TensorHeader> HeaderIn(const json& metadata) {
  std::string bytes;
  v1::TensorHeader header;
  if (!absl::Base64Unescape(TextOf(metadata, "attnbias.header"), &bytes) ||
      Checksum(bytes) != TextOf(metadata, "attnbias.header_crc32c") ||
      !header.ParseFromString(bytes) ||
      !CheckHeader(header, std::numeric_limits<int64_t>::max()).ok()) {
    return std::nullopt;
  }
  return header;
}

// The tensor of a file, if that is whole; its payload is read unless
// `verified`.
std::optional<Tensor> TensorIn(const std::shared_ptr<const MappedFile>& file,
                               const std::string& fingerprint, bool verified) {
  const std::string_view bytes = file->bytes();
  if (bytes.size() < kLengthBytes) return std::nullopt;
  uint64_t length = 0;
  CodedInputStream::ReadLittleEndian64FromArray(
      reinterpret_cast<const uint8_t*>(bytes.data()), &length);
  if (length > bytes.size() - kLengthBytes ||
      (kLengthBytes + length) % kPayloadAlignment != 0) {
    return std::nullopt;
  }
  const json metadata = MetadataIn(bytes.substr(kLengthBytes, length));
  const std::string_view payload = bytes.substr(kLengthBytes + length);
  std::optional<v1::TensorHeader> header = HeaderIn(metadata);
  if (!header.has_value() || header->fingerprint() != fingerprint ||
      static_cast<uint64_t>(header->total_bytes()) != payload.size()) {
    return std::nullopt;
  }
  if (!verified && Checksum(payload) != TextOf(metadata, "attnbias.crc32c")) {
    return std::nullopt;
  }
  return Tensor(*std::move(header),
                std::shared_ptr<const std::byte[]>(
                    file, reinterpret_cast<const std::byte*>(payload.data())));
}

}  // namespace

absl::StatusOr<std::string> CacheFolderFrom(
    const std::optional<std::string>& folder) {
  const char* const named = std::getenv(kVariable);
  const std::string given = folder.value_or(named != nullptr ? named : "");
  if (given.empty()) return given;
  const auto refused = [&](const std::string& why) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder.has_value() ? "cache_folder" : kVariable, ": got ",
                     given, ", ", why));
  };
  std::string path = given;
  if (path.front() == '~') {
    const size_t end = std::min(path.find('/'), path.size());
    const std::string home = HomeOf(path.substr(1, end - 1));
    if (home.empty()) return refused("where ~ is nobody's; want a path");
    path.replace(0, end, home);
  }
  std::error_code error;
  path = std::filesystem::absolute(path, error);
  if (error) {
    return refused(absl::StrCat("in a folder that cannot be named: ",
                                error.message(), "; want an absolute path"));
  }
  const std::filesystem::file_status status =
      std::filesystem::status(path, error);
  if (exists(status) && !is_directory(status)) {
    return refused("which is a file; want a folder");
  }
  return path;
}

std::string CacheKey(const v1::TensorSpec& spec) {
  std::string bytes = kKeyPrefix;
  {
    StringOutputStream out(&bytes);  // appends
    CodedOutputStream coded(&out);
    coded.SetSerializationDeterministic(true);
    spec.SerializeToCodedStream(&coded);
  }
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(),
             reinterpret_cast<unsigned char*>(digest.data()), &size,
             EVP_sha256(), nullptr);
  digest.resize(size);
  return absl::BytesToHexString(digest);
}

bool NamesATable(const Message& message) {
  if (message.GetDescriptor() == v1::TableRef::descriptor()) {
    return static_cast<const v1::TableRef&>(message).source_case() ==
           v1::TableRef::kName;
  }
  const Reflection* const reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  return std::ranges::any_of(fields, [&](const FieldDescriptor* field) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return false;
    if (!field->is_repeated()) {
      return NamesATable(reflection->GetMessage(message, field));
    }
    for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
      if (NamesATable(reflection->GetRepeatedMessage(message, field, i))) {
        return true;
      }
    }
    return false;
  });
}

std::optional<Tensor> DiskCache::Find(
    const std::string& key,
    const std::optional<std::string>& fingerprint) const {
  const std::string line = Read("requests", key);
  const std::optional<std::string> known = FingerprintIn(line);
  const std::string name = fingerprint.value_or(known.value_or(""));
  if (!IsFingerprint(name)) return std::nullopt;
  const auto file = MappedFile::Open(
      absl::StrCat(folder_, "/tensors/", name, ".safetensors"));
  if (file == nullptr) return std::nullopt;
  const std::string now = LineOf(name, file->status());
  std::optional<Tensor> tensor =
      TensorIn(file, name, now == line || WasVerified(now));
  if (tensor.has_value()) {
    const std::lock_guard lock(mutex_);
    verified_.insert(now);
  }
  return tensor;
}

std::string DiskCache::FindDescription(const std::string& key) const {
  return Read("descriptions", key);
}

std::string DiskCache::Read(const char* kind, const std::string& key) const {
  const auto file =
      MappedFile::Open(absl::StrCat(folder_, "/", kind, "/", key));
  return file == nullptr ? "" : std::string(file->bytes());
}

bool DiskCache::WasVerified(const std::string& line) const {
  const std::lock_guard lock(mutex_);
  return verified_.contains(line);
}

}  // namespace attnbias
