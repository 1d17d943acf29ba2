// SPDX-License-Identifier: Apache-2.0
// The C++ client and the folder in which it keeps tensors.
// tests/integration/cpp_cache_test.py shares one with the other clients.
#include "client/cpp/src/disk_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "attnbias/client.h"
#include "client/cpp/src/draft.h"
#include "core/checksum/crc32c.h"
#include "tests/client/fake_server.h"

namespace attnbias::disk_cache_test {
namespace {

using ::testing::HasSubstr;

constexpr size_t kBytes = 4000;
constexpr char kFingerprint[] =
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
constexpr char kOther[] =
    "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";
// The Python client's, of `AlibiSpec()`.
constexpr char kKey[] =
    "3d546ad49521700741710762fea528e30e2b014c2caa07fc1c16232ce57bff53";

v1::TensorSpec AlibiSpec() {
  v1::TensorSpec spec;
  spec.mutable_alibi()->set_num_heads(8);
  spec.mutable_pair()->set_query_length(4);
  spec.mutable_pair()->set_key_length(4);
  return spec;
}

std::string Checksum(const std::string& bytes) {
  return absl::StrCat(
      absl::Hex(Crc32c(bytes.data(), bytes.size()), absl::kZeroPad8));
}

// A file as docs/cache.md has it.
std::string FileOf(const v1::TensorHeader& header, const std::string& payload) {
  const std::string bytes = header.SerializeAsString();
  nlohmann::json content;
  content["__metadata__"] = {
      {"attnbias.header", absl::Base64Escape(bytes)},
      {"attnbias.header_crc32c", Checksum(bytes)},
      {"attnbias.crc32c", Checksum(payload)},
  };
  std::string text = content.dump();
  text.append(64 - (8 + text.size()) % 64, ' ');
  std::string file;
  for (int shift = 0; shift < 64; shift += 8) {
    file.push_back(static_cast<char>(uint64_t{text.size()} >> shift));
  }
  return file + text + payload;
}

class DiskCacheTest : public ::testing::Test {
 protected:
  DiskCacheTest() {
    folder_ = ::testing::TempDir() + "disk_cache_XXXXXX";
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    options_.cache_folder = folder_;
    options_.target = server_.target();
    options_.on_cache_error = [this](const absl::Status& error) {
      errors_.push_back(error);
    };
    Write(TensorPath(), FileOf(header_, payload_));
    Write(LinePath(), absl::StrCat(kFingerprint, " 0 0 0\n"));
  }
  ~DiskCacheTest() override { std::filesystem::remove_all(folder_); }

  std::string TensorPath() const {
    return absl::StrCat(folder_, "/tensors/", kFingerprint, ".safetensors");
  }
  std::string LinePath() const {
    return absl::StrCat(folder_, "/requests/", kKey);
  }

  static void Write(const std::filesystem::path& path,
                    const std::string& bytes) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
  }
  static std::string Read(const std::filesystem::path& path) {
    std::ostringstream bytes;
    bytes << std::ifstream(path, std::ios::binary).rdbuf();
    return bytes.str();
  }

  // By their paths in the folder.
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(folder_)) {
      if (!entry.is_directory()) {
        files.push_back(entry.path().lexically_relative(folder_));
      }
    }
    std::ranges::sort(files);
    return files;
  }

  Client MakeClient() const { return *Client::Create(options_); }

  // A tensor's bytes, or the error as text.
  static std::string Text(const absl::StatusOr<Tensor>& tensor) {
    if (!tensor.ok()) return tensor.status().ToString();
    return {reinterpret_cast<const char*>(tensor->bytes().data()),
            tensor->bytes().size()};
  }

  void ThenDescribe(const v1::TensorHeader& header) {
    server_.ThenDescribe([header](v1::DescribeTensorResponse* response) {
      *response->mutable_header() = header;
      return grpc::Status::OK;
    });
  }

  // The server has `fresh_` to send, which is not what the file has.
  void ThenFetch() {
    ThenDescribe(fresh_header_);
    server_.Then([this](const FakeStream& stream) {
      return stream.SendAll(fresh_, fresh_header_);
    });
  }

  // A client of the same folder that asks no server.
  Client Offline() const {
    ClientOptions options = options_;
    options.offline = true;
    return *Client::Create(options);
  }

  std::string folder_;
  ClientOptions options_;
  std::vector<absl::Status> errors_;
  const std::string payload_ = MakePayload(kBytes);
  const v1::TensorHeader header_ = MakeHeader(payload_, kFingerprint);
  const std::string fresh_ = MakePayload(kBytes, 2);
  const v1::TensorHeader fresh_header_ = MakeHeader(fresh_, kFingerprint);
  // Last, so that it has stopped before what its scripts send is gone.
  FakeServer server_;
};

TEST(CacheKeyTest, IsThePythonClients) {
  EXPECT_EQ(CacheKey(AlibiSpec()), kKey);
  v1::TensorSpec spec;
  v1::T5* t5 = spec.mutable_t5();
  t5->set_num_heads(2);
  t5->set_num_buckets(4);
  t5->set_max_distance(8);
  t5->set_bidirectional(true);
  v1::InlineTable* table = t5->mutable_table()->mutable_inline_table();
  table->set_data_type(v1::DATA_TYPE_F32);
  table->add_shape(4);
  table->add_shape(2);
  const float numbers[] = {0, 1, 2, 3, 4, 5, 6, 7};
  table->set_data(numbers, sizeof numbers);
  v1::PairExtent* pair = spec.mutable_pair();
  pair->set_query_length(3);
  pair->mutable_queries()->set_begin(1);
  pair->mutable_queries()->set_end(3);
  pair->set_key_length(4);
  pair->set_alignment(v1::ALIGNMENT_END);
  v1::Output* output = spec.mutable_output();
  output->set_data_type(v1::DATA_TYPE_BF16);
  output->mutable_mask()->set_causal(true);
  output->mutable_mask()->set_fill_value(-1.5);
  output->set_scale(0.5);
  EXPECT_EQ(CacheKey(spec),
            "00344b1b78231cfc0ee25c70896d849a3621ee146396c09cafbe3cee9fde7142");
}

TEST(NamesATableTest, FindsANameWhereverItIs) {
  EXPECT_FALSE(NamesATable(AlibiSpec()));
  v1::TensorSpec spec;
  spec.mutable_t5()->mutable_table()->set_sha256("ab");
  EXPECT_FALSE(NamesATable(spec));
  spec.mutable_t5()->mutable_table()->set_name("w");
  EXPECT_TRUE(NamesATable(spec));
  auto* layers = spec.mutable_dynamic_position_bias()->mutable_layers();
  EXPECT_FALSE(NamesATable(spec));
  layers->Add();
  layers->Add()->mutable_weight()->set_name("w");
  EXPECT_TRUE(NamesATable(spec));
}

TEST_F(DiskCacheTest, AHitNeedsNoServer) {
  server_.Stop();
  std::optional<Tensor> kept;
  {
    const auto tensor = MakeClient().Get(AlibiSpec());
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    kept = *tensor;
  }
  std::filesystem::remove_all(folder_);
  EXPECT_EQ(Text(*kept), payload_);
  EXPECT_EQ(kept->header().SerializeAsString(), header_.SerializeAsString());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(kept->bytes().data()) % 64, 0u);
  EXPECT_EQ(kept->part(0).size(), kBytes);
}

TEST_F(DiskCacheTest, AHitIsCopiedIntoTheCallersMemory) {
  server_.Stop();
  std::string out(kBytes + 2, 'x');
  const auto span =
      absl::MakeSpan(reinterpret_cast<std::byte*>(out.data()), out.size());
  const auto header = MakeClient().GetInto(AlibiSpec(), span);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(out, payload_ + "xx");
  EXPECT_EQ(
      MakeClient().GetInto(AlibiSpec(), span.first(10)).status(),
      absl::InvalidArgumentError("out: got 10 bytes, want at least 4000"));
}

TEST_F(DiskCacheTest, WhatIsDamagedIsFetched) {
  const std::string file = FileOf(header_, payload_);
  const size_t begin = file.size() - kBytes;
  const auto flipped = [&](size_t at) {
    std::string bytes = file;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    return bytes;
  };
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string bytes = file;
    return bytes.replace(bytes.find(from), from.size(), to);
  };
  std::string unaligned = file;
  --unaligned[0];
  unaligned.erase(begin - 1, 1);  // a space at the end of the JSON
  v1::TensorHeader contradicting = header_;
  contradicting.mutable_parts(0)->set_offset(4);
  const std::pair<const char*, std::string> damages[] = {
      {"first byte", flipped(begin)},
      {"last byte", flipped(file.size() - 1)},
      {"length", flipped(0)},
      {"huge length", flipped(7).replace(7, 1, "\xff")},
      {"header", replaced("attnbias.header\":\"", "attnbias.header\":\"AA")},
      {"JSON", flipped(8)},
      {"no metadata", replaced("__metadata__", "__metadata_x")},
      {"cut", file.substr(0, file.size() - 1)},
      {"cut in the JSON", file.substr(0, 20)},
      {"cut in the length", file.substr(0, 7)},
      {"empty", ""},
      {"longer", file + "x"},
      {"not aligned", unaligned},
      {"another's", FileOf(MakeHeader(payload_, kOther), payload_)},
      {"contradicting", FileOf(contradicting, payload_)},
  };
  for (const auto& [what, bytes] : damages) {
    SCOPED_TRACE(what);
    ASSERT_NE(bytes, file);
    std::filesystem::remove(TensorPath());
    Write(TensorPath(), bytes);
    errors_.clear();
    ThenFetch();
    EXPECT_EQ(Text(MakeClient().Get(AlibiSpec())), fresh_);
    ASSERT_EQ(errors_.size(), 1u);
    EXPECT_EQ(errors_[0].code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(
        std::string(errors_[0].message()),
        HasSubstr(absl::StrCat(kFingerprint, ".safetensors is damaged: ")));
    EXPECT_EQ(Text(Offline().Get(AlibiSpec())), fresh_);
  }
}

TEST_F(DiskCacheTest, ALineThatIsNoneIsAsMissing) {
  for (const std::string& line :
       {std::string(), std::string("x"), std::string(kFingerprint),
        absl::StrCat(kFingerprint, " 0 0 0"),
        absl::StrCat(kFingerprint, " 0 0 0\n\n"),
        absl::StrCat(kFingerprint, " 0 0 -1\n"),
        absl::StrCat("../requests/", kFingerprint, " 0 0 0\n")}) {
    SCOPED_TRACE(line);
    Write(LinePath(), line);
    ThenDescribe(header_);
    EXPECT_EQ(Text(MakeClient().Get(AlibiSpec())), payload_);
  }
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(DiskCacheTest, TheServersWordIsNoPath) {
  ThenDescribe(MakeHeader(fresh_, absl::StrCat("../tensors/", kFingerprint)));
  server_.Then([this](const FakeStream& stream) {
    return stream.SendAll(fresh_, fresh_header_);
  });
  std::filesystem::remove(LinePath());
  EXPECT_EQ(Text(MakeClient().Get(AlibiSpec())), fresh_);
}

// So a large tensor costs nothing the second time.
TEST_F(DiskCacheTest, BytesThatWereVerifiedAreNotReadAgain) {
  std::string damaged = FileOf(header_, payload_);
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  Write(TensorPath(), damaged);
  struct stat status = {};
  ASSERT_EQ(stat(TensorPath().c_str(), &status), 0);
  const int64_t time =
      int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  Write(LinePath(), absl::StrCat(kFingerprint, " ", status.st_size, " ", time,
                                 " ", status.st_ino, "\n"));
  EXPECT_EQ(Text(MakeClient().Get(AlibiSpec())).back(), damaged.back());
}

TEST_F(DiskCacheTest, OtherWordsCostOneQuestion) {
  v1::TensorSpec spec = AlibiSpec();
  spec.mutable_output()->set_data_type(v1::DATA_TYPE_F32);
  ThenDescribe(header_);
  EXPECT_EQ(Text(MakeClient().Get(spec)), payload_);
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(DiskCacheTest, WhatANameMeansTheServerSays) {
  v1::TensorSpec spec = AlibiSpec();
  spec.mutable_t5()->mutable_table()->set_name("w");
  Write(absl::StrCat(folder_, "/requests/", CacheKey(spec)),
        absl::StrCat(kFingerprint, " 0 0 0\n"));
  const v1::TensorHeader other = MakeHeader(fresh_, kOther);
  ThenDescribe(other);
  server_.Then([this, other](const FakeStream& stream) {
    return stream.SendAll(fresh_, other);
  });
  EXPECT_EQ(Text(MakeClient().Get(spec)), fresh_);
  ThenDescribe(header_);
  EXPECT_EQ(Text(MakeClient().Get(spec)), payload_);
  options_.offline = true;
  EXPECT_EQ(Text(MakeClient().Get(spec)), payload_);
}

TEST_F(DiskCacheTest, DescribeAsksTheFolderFirst) {
  server_.Stop();
  EXPECT_EQ(MakeClient().Describe(AlibiSpec())->fingerprint(), kFingerprint);
  v1::TensorSpec spec = AlibiSpec();
  spec.mutable_alibi()->set_num_heads(2);
  v1::DescribeTensorResponse answer;
  *answer.mutable_header() = MakeHeader(fresh_, kOther);
  const std::string header = answer.header().SerializeAsString();
  answer.set_header_crc32c(Crc32c(header.data(), header.size()));
  const std::string path =
      absl::StrCat(folder_, "/descriptions/", CacheKey(spec));
  Write(path, answer.SerializeAsString());
  options_.offline = true;
  EXPECT_EQ(MakeClient().Describe(spec)->fingerprint(), kOther);
  answer.set_header_crc32c(answer.header_crc32c() ^ 1);
  Write(path, answer.SerializeAsString());
  EXPECT_EQ(MakeClient().Describe(spec).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(DiskCacheTest, AClientThatIsOfflineAsksNobody) {
  options_.offline = true;
  const Client client = MakeClient();
  EXPECT_EQ(Text(client.Get(AlibiSpec())), payload_);
  v1::TensorSpec spec = AlibiSpec();
  spec.mutable_pair()->set_key_length(5);
  for (const absl::Status& missing :
       {client.Get(spec).status(), client.Describe(spec).status()}) {
    EXPECT_EQ(missing,
              absl::NotFoundError(absl::StrCat(
                  "offline: ", folder_,
                  " does not have pair { query_length: 4 key_length: 5 } "
                  "alibi { num_heads: 8 }; export it, or get it once, in these "
                  "words, with a client that has this cache and is not "
                  "offline")));
  }
  EXPECT_EQ(client.ServerInfo().status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(client.ListTables().status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(client.CheckHealth("").status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(server_.info_calls(), 0);

  options_.cache_folder = "";
  EXPECT_EQ(Client::Create(options_).status(),
            absl::InvalidArgumentError(
                "offline: got true without a cache, want cache_folder, or "
                "ATTNBIAS_CACHE_DIR"));
}

TEST_F(DiskCacheTest, AWrongBoundIsRefused) {
  options_.cache_bytes = 0;
  EXPECT_EQ(Client::Create(options_).status(),
            absl::InvalidArgumentError("cache_bytes: got 0, want at least 1"));
  options_.cache_bytes = 5;
  options_.cache_folder = "";
  EXPECT_EQ(Client::Create(options_).status(),
            absl::InvalidArgumentError(
                "cache_bytes: got 5 without a cache, want cache_folder, or "
                "ATTNBIAS_CACHE_DIR"));
}

TEST_F(DiskCacheTest, WhatIsMissingIsToldInOneLine) {
  options_.offline = true;
  v1::TensorSpec spec = AlibiSpec();
  v1::InlineTable* table =
      spec.mutable_t5()->mutable_table()->mutable_inline_table();
  table->set_data(std::string(1 << 20, '\1'));
  const auto error = [&] {
    return std::string(MakeClient().Get(spec).status().message());
  };
  EXPECT_THAT(error(), HasSubstr("key_length: 4"));
  for (int i = 0; i < 10000; ++i) {
    spec.mutable_pair()->mutable_query_positions()->add_positions(i);
  }
  EXPECT_THAT(error(), HasSubstr("positions: [0, 1, 2,"));
  EXPECT_THAT(error(), HasSubstr("inline_table"));
  EXPECT_LT(error().size(), folder_.size() + 700);
}

TEST_F(DiskCacheTest, TheBoundHoldsHereToo) {
  options_.max_tensor_bytes = kBytes - 1;
  EXPECT_EQ(MakeClient().Get(AlibiSpec()).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// What fills the folder: begins with one that is not there.
class FillTest : public DiskCacheTest {
 protected:
  FillTest() {
    std::filesystem::remove_all(folder_);
    options_.timeout = absl::Seconds(60);
  }

  // What Get leaves there.
  const std::vector<std::string> kept_ = {
      absl::StrCat("requests/", kKey),
      absl::StrCat("tensors/", kFingerprint, ".safetensors")};

  static struct stat StatusOf(const std::string& path) {
    struct stat status = {};
    EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
    return status;
  }

  static std::string LineOf(const std::string& path) {
    const struct stat status = StatusOf(path);
    const int64_t time =
        int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
    return absl::StrCat(kFingerprint, " ", status.st_size, " ", time, " ",
                        status.st_ino, "\n");
  }

  static void SetTime(const std::string& path, absl::Time time) {
    const timespec times[] = {absl::ToTimespec(time), absl::ToTimespec(time)};
    EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }

  static v1::TensorSpec OfHeads(int heads) {
    v1::TensorSpec spec = AlibiSpec();
    spec.mutable_alibi()->set_num_heads(heads);
    return spec;
  }
  // Has a tensor of that name be asked for and kept, last used at `time`.
  void Keep(const Client& client, int heads, char digit, absl::Time time) {
    const v1::TensorHeader header =
        MakeHeader(payload_, std::string(64, digit));
    ThenDescribe(header);
    server_.Then([this, header](const FakeStream& stream) {
      return stream.SendAll(payload_, header);
    });
    EXPECT_EQ(Text(client.Get(OfHeads(heads))), payload_);
    SetTime(absl::StrCat(folder_, "/requests/", CacheKey(OfHeads(heads))),
            time);
  }
  // First digits of the fingerprints.
  std::string Kept() const {
    std::string digits;
    for (const std::string& file : Files()) {
      if (file.starts_with("tensors/")) digits += file[8];
    }
    return digits;
  }
};

TEST_F(FillTest, WhatWasFetchedIsKept) {
  ThenFetch();
  const auto tensor = MakeClient().Get(AlibiSpec());
  EXPECT_EQ(Text(tensor), fresh_);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor->bytes().data()) % 64, 0u);
  EXPECT_EQ(Files(), kept_);
  EXPECT_EQ(Read(LinePath()), LineOf(TensorPath()));
  server_.Stop();
  for (const Client& client : {MakeClient(), Offline()}) {
    const auto again = client.Get(AlibiSpec());
    EXPECT_EQ(Text(again), fresh_);
    EXPECT_EQ(again->header().SerializeAsString(),
              fresh_header_.SerializeAsString());
  }
  EXPECT_EQ(errors_.size(), 0u);
}

TEST_F(FillTest, WhatIsGivenIsTheFileItself) {
  ThenFetch();
  const auto tensor = MakeClient().Get(AlibiSpec());
  const auto address = reinterpret_cast<uintptr_t>(tensor->bytes().data());
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    ASSERT_EQ(std::sscanf(line.c_str(), "%lx-%lx", &begin, &end), 2);
    if (address < begin || address >= end) continue;
    EXPECT_THAT(line, HasSubstr(" r--s "));
    EXPECT_THAT(line, HasSubstr(TensorPath()));
    return;
  }
  FAIL() << "nothing is mapped there";
}

TEST_F(FillTest, WhatComesIntoTheCallersMemoryIsKept) {
  ThenFetch();
  std::string out(kBytes + 2, 'x');
  const auto span =
      absl::MakeSpan(reinterpret_cast<std::byte*>(out.data()), out.size());
  ASSERT_TRUE(MakeClient().GetInto(AlibiSpec(), span).ok());
  EXPECT_EQ(out, fresh_ + "xx");
  std::ranges::fill(out, 'y');  // it is not the file
  EXPECT_EQ(Text(Offline().Get(AlibiSpec())), fresh_);
  EXPECT_EQ(Files(), kept_);
}

TEST_F(FillTest, FilesFollowTheUmask) {
  const mode_t before = umask(027);
  ThenFetch();
  EXPECT_EQ(Text(MakeClient().Get(AlibiSpec())), fresh_);
  umask(before);
  EXPECT_EQ(StatusOf(TensorPath()).st_mode & 0777, 0640u);
  EXPECT_EQ(StatusOf(LinePath()).st_mode & 0777, 0640u);
  EXPECT_EQ(StatusOf(folder_).st_mode & 0777, 0750u);
}

TEST_F(FillTest, WhatWasDescribedIsKnown) {
  ThenDescribe(header_);
  EXPECT_EQ(MakeClient().Describe(AlibiSpec())->fingerprint(), kFingerprint);
  EXPECT_EQ(Files(),
            std::vector<std::string>{absl::StrCat("descriptions/", kKey)});
  EXPECT_EQ(MakeClient().Describe(AlibiSpec())->fingerprint(), kFingerprint);
  EXPECT_EQ(Offline().Describe(AlibiSpec())->fingerprint(), kFingerprint);
}

TEST_F(FillTest, AFolderThatWasCopiedIsReadOnce) {
  ThenFetch();
  EXPECT_EQ(Text(MakeClient().Get(AlibiSpec())), fresh_);
  SetTime(TensorPath(), absl::UnixEpoch());
  EXPECT_EQ(Text(Offline().Get(AlibiSpec())), fresh_);
  EXPECT_EQ(Read(LinePath()), LineOf(TensorPath()));
}

TEST_F(FillTest, AHitIsAUse) {
  ThenFetch();
  EXPECT_EQ(Text(MakeClient().Get(AlibiSpec())), fresh_);
  SetTime(LinePath(), absl::UnixEpoch());
  EXPECT_EQ(Text(Offline().Get(AlibiSpec())), fresh_);
  EXPECT_GT(StatusOf(LinePath()).st_mtim.tv_sec, 0);
}

TEST_F(FillTest, OneFetchesForAll) {
  ThenDescribe(header_);
  server_.Then([this](const FakeStream& stream) {
    absl::SleepFor(absl::Milliseconds(50));
    return stream.SendAll(payload_, header_);
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back(
        [this] { EXPECT_EQ(Text(MakeClient().Get(AlibiSpec())), payload_); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(server_.requests().size(), 1u);
  EXPECT_EQ(Files(), kept_);
}

TEST_F(FillTest, TheTimeoutIsOfWaitingForAnotherToo) {
  options_.timeout = absl::Milliseconds(100);
  const auto draft = Draft::TryLock(absl::StrCat(folder_, "/drafts/", kKey));
  ASSERT_TRUE(draft.ok() && *draft != nullptr);
  EXPECT_EQ(
      MakeClient().Get(AlibiSpec()).status(),
      absl::DeadlineExceededError(
          "timeout: 100ms are over, while another call fetches the same"));
}

TEST_F(FillTest, ACallThatFailsLeavesNothing) {
  ThenDescribe(header_);
  EXPECT_EQ(MakeClient().Get(AlibiSpec()).status(),
            absl::InternalError("a stream without a script"));
  EXPECT_EQ(Files(), std::vector<std::string>());
}

TEST_F(FillTest, WhatADeadWriterLeftIsWrittenOver) {
  Write(absl::StrCat(folder_, "/drafts/", kKey), std::string(10 * kBytes, 'x'));
  ThenFetch();
  EXPECT_EQ(Text(MakeClient().Get(AlibiSpec())), fresh_);
  EXPECT_EQ(Files(), kept_);
  EXPECT_LT(StatusOf(TensorPath()).st_size, int64_t{2 * kBytes});
}

TEST_F(FillTest, DraftsOfTheDeadAreRemoved) {
  const std::string drafts = folder_ + "/drafts/";
  const std::string dead(64, 'd');
  const std::string young(64, 'e');
  const std::string held(64, 'f');
  for (const std::string& name :
       {dead, dead + ".0011", young, held, std::string("somebody's own")}) {
    Write(drafts + name, "");
    if (name != young) SetTime(drafts + name, absl::UnixEpoch());
  }
  const auto draft = Draft::TryLock(drafts + held);
  ASSERT_TRUE(draft.ok() && *draft != nullptr);
  ThenFetch();
  EXPECT_EQ(Text(MakeClient().Get(AlibiSpec())), fresh_);
  std::vector<std::string> want = kept_;
  for (const std::string& name : {young, held, std::string("somebody's own")}) {
    want.push_back("drafts/" + name);
  }
  std::ranges::sort(want);
  EXPECT_EQ(Files(), want);
}

TEST_F(FillTest, ALockIsOfOne) {
  const std::string path = folder_ + "/drafts/a";
  auto draft = *Draft::TryLock(path);
  ASSERT_NE(draft, nullptr);
  EXPECT_EQ(*Draft::TryLock(path), nullptr);
  std::filesystem::remove(path);  // a lock that was deleted is nobody's
  auto other = *Draft::TryLock(path);
  EXPECT_NE(other, nullptr);
  draft.reset();  // and removes no one else's
  EXPECT_TRUE(std::filesystem::exists(path));
  other.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(FillTest, TheBoundRemovesWhatWasUsedLongestAgo) {
  const absl::Time now = absl::Now();
  Keep(MakeClient(), 1, 'a', now - absl::Hours(1));
  Keep(MakeClient(), 2, 'b', now - absl::Hours(3));
  Keep(MakeClient(), 3, 'c', now - absl::Hours(2));
  const int64_t size =
      StatusOf(absl::StrCat(folder_, "/tensors/", std::string(64, 'a'),
                            ".safetensors"))
          .st_size;
  Write(folder_ + "/tensors/notes.txt", std::string(4 * size, 'x'));
  options_.cache_bytes = 3 * size;
  const auto held = Offline().Get(OfHeads(2));
  SetTime(absl::StrCat(folder_, "/requests/", CacheKey(OfHeads(2))),
          now - absl::Hours(3));
  Keep(MakeClient(), 4, 'd', now);
  EXPECT_EQ(Kept(), "acdn");
  EXPECT_EQ(Text(held), payload_);  // mapped, though its file is gone
  EXPECT_FALSE(std::filesystem::exists(
      absl::StrCat(folder_, "/requests/", CacheKey(OfHeads(2)))));
  EXPECT_TRUE(std::filesystem::exists(
      absl::StrCat(folder_, "/requests/", CacheKey(OfHeads(3)))));
  options_.cache_bytes = 2 * size;
  Keep(MakeClient(), 5, 'e', now);
  EXPECT_EQ(Kept(), "den");
  EXPECT_EQ(errors_.size(), 0u);
}

TEST_F(FillTest, WhatIsLargerThanTheBoundIsNotKept) {
  options_.cache_bytes = kBytes;
  const Client client = MakeClient();
  for (int i = 0; i < 2; ++i) {
    ThenFetch();
    EXPECT_EQ(Text(client.Get(AlibiSpec())), fresh_);
  }
  EXPECT_EQ(Files(), std::vector<std::string>());
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_EQ(errors_[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(errors_[0].message()),
              HasSubstr("bytes, cache_bytes is 4000; calls go on without it"));
}

TEST_F(FillTest, AFolderThatCannotBeWrittenIsToldOfOnce) {
  const std::string file = folder_ + "/file";
  Write(file, "");
  options_.cache_folder = file + "/inside";
  const Client client = MakeClient();
  for (int i = 0; i < 2; ++i) {
    ThenFetch();
    EXPECT_EQ(Text(client.Get(AlibiSpec())), fresh_);
  }
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_THAT(std::string(errors_[0].message()),
              HasSubstr("Not a directory; calls go on without it"));
}

TEST_F(FillTest, AFolderThatIsOnlyReadIsRead) {
  ThenFetch();
  EXPECT_EQ(Text(MakeClient().Get(AlibiSpec())), fresh_);
  Write(LinePath(), absl::StrCat(kFingerprint, " 1 2 3\n"));
  for (const char* name : {"/tensors", "/requests", "/drafts", ""}) {
    std::filesystem::permissions(folder_ + name, std::filesystem::perms(0555));
  }
  const bool is_root = geteuid() == 0;  // who may write anywhere
  if (is_root) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  const Client client = MakeClient();
  EXPECT_EQ(Text(client.Get(AlibiSpec())), fresh_);
  EXPECT_EQ(errors_.size(), 0u);
  for (int i = 0; i < 2; ++i) {
    ThenFetch();
    EXPECT_EQ(Text(client.Get(OfHeads(2 + i))), fresh_);
  }
  if (is_root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  for (const char* name : {"", "/tensors", "/requests", "/drafts"}) {
    std::filesystem::permissions(folder_ + name, std::filesystem::perms(0755));
  }
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_THAT(
      std::string(errors_[0].message()),
      HasSubstr(absl::StrCat("the cache ", folder_, " cannot be written: ")));
}

TEST_F(FillTest, AFullDiskIsToldOfOnce) {
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit little = {.rlim_cur = 3000, .rlim_max = limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const Client client = MakeClient();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  for (int i = 0; i < 2; ++i) {
    ThenFetch();
    EXPECT_EQ(Text(client.Get(AlibiSpec())), fresh_);
  }
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(Files(), std::vector<std::string>());
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_THAT(std::string(errors_[0].message()),
              HasSubstr("does not keep what was fetched: "));
  ThenFetch();
  EXPECT_EQ(Text(client.Get(AlibiSpec())), fresh_);
  EXPECT_EQ(Files(), kept_);
}

class CacheFolderTest : public DiskCacheTest {
 protected:
  ~CacheFolderTest() override {
    unsetenv("ATTNBIAS_CACHE_DIR");
    setenv("HOME", home_.c_str(), 1);
    std::filesystem::current_path(here_);
  }

 private:
  const std::filesystem::path here_ = std::filesystem::current_path();
  const std::string home_ =
      std::getenv("HOME") != nullptr ? std::getenv("HOME") : "/";
};

TEST_F(CacheFolderTest, TheEnvironmentNamesOneWhereTheOptionsDoNot) {
  setenv("ATTNBIAS_CACHE_DIR", folder_.c_str(), 1);
  options_.cache_folder = std::nullopt;
  EXPECT_EQ(Text(MakeClient().Get(AlibiSpec())), payload_);
  options_.cache_folder = "";
  ThenFetch();
  EXPECT_EQ(Text(MakeClient().Get(AlibiSpec())), fresh_);
}

TEST_F(CacheFolderTest, ItIsWhereItWasWhenTheClientWasMade) {
  server_.Stop();
  const std::filesystem::path folder = folder_;
  std::filesystem::current_path(folder.parent_path());
  options_.cache_folder = folder.filename();
  const Client client = MakeClient();
  std::filesystem::current_path("/");
  EXPECT_EQ(Text(client.Get(AlibiSpec())), payload_);
  EXPECT_EQ(*CacheFolderFrom("cache"), "/cache");
  EXPECT_EQ(*CacheFolderFrom(""), "");
}

TEST_F(CacheFolderTest, AFolderThatIsGoneHasNoFoldersInIt) {
  const std::string gone = folder_ + "/gone";
  std::filesystem::create_directory(gone);
  std::filesystem::current_path(gone);
  std::filesystem::remove(gone);
  EXPECT_THAT(std::string(CacheFolderFrom("cache").status().message()),
              HasSubstr("want an absolute path"));
  EXPECT_EQ(*CacheFolderFrom("/cache"), "/cache");
}

TEST_F(CacheFolderTest, ATildeIsAHome) {
  setenv("HOME", "/nowhere", 1);
  EXPECT_EQ(*CacheFolderFrom("~"), "/nowhere");
  EXPECT_EQ(*CacheFolderFrom("~/a/~"), "/nowhere/a/~");
  const std::string root = getpwnam("root")->pw_dir;
  EXPECT_EQ(*CacheFolderFrom("~root"), root);
  EXPECT_EQ(*CacheFolderFrom("~root/a"), root + "/a");
  unsetenv("HOME");
  EXPECT_EQ(*CacheFolderFrom("~/a"),
            absl::StrCat(getpwuid(getuid())->pw_dir, "/a"));
  EXPECT_EQ(CacheFolderFrom("~who-is-this/a").status(),
            absl::InvalidArgumentError(
                "cache_folder: got ~who-is-this/a, where ~ is nobody's; want a "
                "path"));
}

TEST_F(CacheFolderTest, AFileIsNoFolder) {
  setenv("ATTNBIAS_CACHE_DIR", TensorPath().c_str(), 1);
  options_.cache_folder = std::nullopt;
  EXPECT_EQ(Client::Create(options_).status(),
            absl::InvalidArgumentError(
                absl::StrCat("ATTNBIAS_CACHE_DIR: got ", TensorPath(),
                             ", which is a file; want a folder")));
  options_.cache_folder = TensorPath();
  EXPECT_THAT(std::string(Client::Create(options_).status().message()),
              HasSubstr("cache_folder: got "));
}

}  // namespace
}  // namespace attnbias::disk_cache_test
