// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/disk_cache.h"

#include <fcntl.h>
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
#include <map>
#include <memory>
#include <random>
#include <regex>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/src/mapped_file.h"
#include "client/cpp/src/tensor_file.h"

namespace attnbias {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;

constexpr char kVariable[] = "ATTNBIAS_CACHE_DIR";
constexpr char kKeyPrefix[] = "attnbias request 1\n";
constexpr char kSuffix[] = ".safetensors";
// After so long a draft that nobody holds is nobody's.
constexpr absl::Duration kStale = absl::Minutes(1);
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

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const auto file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  return std::string((*file)->bytes());
}

std::string LineOf(const std::string& fingerprint, const struct stat& status) {
  const int64_t time =
      int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  return absl::StrCat(fingerprint, " ", status.st_size, " ", time, " ",
                      status.st_ino, "\n");
}

absl::Status Damaged(const std::string& fingerprint, absl::string_view how) {
  return absl::DataLossError(
      absl::StrCat(fingerprint, kSuffix, " is damaged: ", how));
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
    const std::string& key, const std::optional<std::string>& fingerprint) {
  const absl::StatusOr<std::string> line = ReadFile(PathOf("requests", key));
  absl::Status status = line.status();
  if (line.ok() || absl::IsNotFound(status)) {
    const std::string before = line.value_or("");
    const std::optional<std::string> known = FingerprintIn(before);
    if (!fingerprint.has_value() && !known.has_value()) return std::nullopt;
    absl::StatusOr<Opened> opened =
        Open(fingerprint.has_value() ? *fingerprint : *known, before);
    if (opened.ok()) {
      Note(key, opened->line, before);
      return std::move(opened->tensor);
    }
    status = opened.status();
  }
  if (absl::IsDataLoss(status)) {
    if (on_error_ != nullptr) on_error_(status);
  } else if (!absl::IsNotFound(status)) {
    Warn("cannot be read", status);
  }
  return std::nullopt;
}

std::string DiskCache::FindDescription(const std::string& key) const {
  return ReadFile(PathOf("descriptions", key)).value_or("");
}

void DiskCache::StoreDescription(const std::string& key,
                                 const std::string& answer) const {
  Replace("descriptions", key, answer);
}

absl::StatusOr<std::unique_ptr<Draft>> DiskCache::TryLock(
    const std::string& key) const {
  return Draft::TryLock(PathOf("drafts", key));
}

std::optional<Tensor> DiskCache::Store(const std::string& key, Draft* draft,
                                       const Tensor& tensor,
                                       const v1::Mask& mask) {
  absl::StatusOr<Tensor> kept = Keep(key, draft, tensor, mask);
  if (kept.ok()) return *std::move(kept);
  Warn("does not keep what was fetched", kept.status());
  return std::nullopt;
}

void DiskCache::Warn(const std::string& what, const absl::Status& why) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(has_warned_, true)) return;
  }
  if (on_error_ == nullptr) return;
  on_error_(absl::Status(
      why.code(), absl::StrCat("the cache ", folder_, " ", what, ": ",
                               why.message(), "; calls go on without it")));
}

std::string DiskCache::PathOf(const char* kind, const std::string& name) const {
  return absl::StrCat(folder_, "/", kind, "/", name);
}

std::string DiskCache::TensorPath(const std::string& fingerprint) const {
  return PathOf("tensors", absl::StrCat(fingerprint, kSuffix));
}

absl::StatusOr<DiskCache::Opened> DiskCache::Open(
    const std::string& fingerprint, const std::string& trusted) {
  if (!IsFingerprint(fingerprint)) {
    return Damaged(fingerprint, "want 64 hex digits for a name");
  }
  const std::string path = TensorPath(fingerprint);
  const auto file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  const std::string line = LineOf(fingerprint, (*file)->status());
  bool verify = line != trusted;
  if (verify) {
    const std::lock_guard lock(mutex_);
    verify = !verified_.contains(line);
  }
  absl::StatusOr<Tensor> tensor = ReadTensorFile(*file, fingerprint, verify);
  if (!tensor.ok()) {
    unlink(path.c_str());  // fails in a folder that is only read
    return Damaged(fingerprint, tensor.status().message());
  }
  const std::lock_guard lock(mutex_);
  verified_.insert(line);
  return Opened{*std::move(tensor), line};
}

absl::StatusOr<Tensor> DiskCache::Keep(const std::string& key, Draft* draft,
                                       const Tensor& tensor,
                                       const v1::Mask& mask) {
  const std::string& fingerprint = tensor.header().fingerprint();
  if (!IsFingerprint(fingerprint)) {
    return Damaged(fingerprint, "want 64 hex digits for a name");
  }
  const auto head = TensorFileHead(tensor, mask);
  if (!head.ok()) return head.status();
  const std::string_view payload(
      reinterpret_cast<const char*>(tensor.bytes().data()),
      tensor.bytes().size());
  const auto size = static_cast<int64_t>(head->size() + payload.size());
  if (max_bytes_.has_value() && size > *max_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "its file has ", size, " bytes, cache_bytes is ", *max_bytes_));
  }
  Sweep();
  MakeRoom(size);
  if (absl::Status status = draft->Write({*head, payload}); !status.ok()) {
    return status;
  }
  const absl::StatusOr<struct stat> written = draft->Sync();
  if (!written.ok()) return written.status();
  const std::string line = LineOf(fingerprint, *written);
  // Before the tensor has its name: whoever waits for the draft finds both.
  Note(key, line, "");
  if (absl::Status status = draft->RenameTo(TensorPath(fingerprint));
      !status.ok()) {
    return status;
  }
  absl::StatusOr<Opened> opened = Open(fingerprint, line);
  if (!opened.ok()) return opened.status();
  return std::move(opened->tensor);
}

void DiskCache::Note(const std::string& key, const std::string& now,
                     const std::string& before) const {
  if (now == before) {
    utimensat(AT_FDCWD, PathOf("requests", key).c_str(), nullptr, 0);
    return;
  }
  Replace("requests", key, now);
}

void DiskCache::Replace(const char* kind, const std::string& key,
                        const std::string& bytes) const {
  std::random_device random;
  const uint64_t number = uint64_t{random()} << 32 | random();
  const auto draft = Draft::TryLock(PathOf(
      "drafts", absl::StrCat(key, ".", absl::Hex(number, absl::kZeroPad16))));
  if (!draft.ok() || *draft == nullptr || !(*draft)->Write({bytes}).ok()) {
    return;
  }
  (*draft)->RenameTo(PathOf(kind, key)).IgnoreError();
}

void DiskCache::MakeRoom(int64_t size) const {
  if (!max_bytes_.has_value()) return;
  struct Known {
    int64_t size;
    absl::Time used = absl::InfinitePast();
    std::vector<std::string> requests = {};  // their files
  };
  std::map<std::string, Known> tensors;
  int64_t excess = size - *max_bytes_;
  struct stat status = {};
  for (const std::string& name : NamesIn("tensors")) {
    const std::string fingerprint = name.substr(0, kNameDigits);
    if (name != fingerprint + kSuffix ||
        stat(TensorPath(fingerprint).c_str(), &status) != 0) {
      continue;
    }
    tensors.emplace(fingerprint, Known{.size = status.st_size});
    excess += status.st_size;
  }
  if (excess <= 0) return;
  for (const std::string& key : NamesIn("requests")) {
    const std::string path = PathOf("requests", key);
    const auto known =
        tensors.find(FingerprintIn(ReadFile(path).value_or("")).value_or(""));
    if (known == tensors.end() || stat(path.c_str(), &status) != 0) continue;
    const absl::Time used = absl::TimeFromTimespec(status.st_mtim);
    known->second.used = std::max(known->second.used, used);
    known->second.requests.push_back(path);
  }
  std::vector<std::string> oldest;
  for (const auto& [fingerprint, known] : tensors) {
    oldest.push_back(fingerprint);
  }
  std::ranges::stable_sort(oldest, {}, [&tensors](const std::string& name) {
    return tensors.at(name).used;
  });
  for (const std::string& fingerprint : oldest) {
    if (excess <= 0) return;
    const Known& known = tensors.at(fingerprint);
    unlink(TensorPath(fingerprint).c_str());
    for (const std::string& path : known.requests) unlink(path.c_str());
    excess -= known.size;
  }
}

void DiskCache::Sweep() const {
  for (const std::string& name : NamesIn("drafts")) {
    struct stat status = {};
    if (stat(PathOf("drafts", name).c_str(), &status) == 0 &&
        absl::Now() - absl::TimeFromTimespec(status.st_mtim) >= kStale) {
      TryLock(name).IgnoreError();  // and so removes it
    }
  }
}

std::vector<std::string> DiskCache::NamesIn(const char* kind) const {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(PathOf(kind, ""), error);
       !error && entry != std::filesystem::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (IsFingerprint(name.substr(0, name.find('.')))) names.push_back(name);
  }
  return names;
}

}  // namespace attnbias
