// SPDX-License-Identifier: Apache-2.0
#include "core/safetensors/safetensors.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/table/table.h"
#include "gmock/gmock.h"
#include "tests/unit/support/fresh_folder.h"
#include "tests/unit/support/safetensors_writer.h"
#include "tests/unit/support/status_matchers.h"

namespace attnbias::safetensors_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Safetensors, ReadsTablesByName) {
  const std::string path = WriteFile(
      FreshFolder() / "some.safetensors",
      SafetensorsBytes(
          {{"wide", {2, 3}, {1, 2, 3, 4, 5, 6}}, {"a", {2}, {7, 8}}, {"scalar", {}, {9}}}));
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  ASSERT_THAT(file, IsOk());
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : file->entries()) {
    names.push_back(entry.name);
  }
  EXPECT_THAT(names, ElementsAre("a", "scalar", "wide"));

  const absl::StatusOr<Table> wide = ReadTable(*file, *file->Find("wide"));
  ASSERT_THAT(wide, IsOk());
  EXPECT_THAT(wide->shape(), ElementsAre(2, 3));
  EXPECT_EQ(wide->At(1, 2), 6);
  const absl::StatusOr<Table> a = ReadTable(*file, *file->Find("a"));
  ASSERT_THAT(a, IsOk());
  EXPECT_EQ(a->At(1), 8);
  EXPECT_EQ(file->Find("b"), nullptr);
  EXPECT_EQ(file->FindOrOnly("a"), file->Find("a"));
  EXPECT_EQ(file->FindOrOnly(""), nullptr);
  EXPECT_FALSE(IsTable(*file->Find("scalar")));
  EXPECT_THAT(ReadTable(*file, *file->Find("scalar")), IsInvalid(path + ":scalar: got F32 []"));
}

TEST(Safetensors, SplitsPathAndTensorName) {
  for (const auto& [text, path, tensor] : {std::tuple("a.safetensors:b:c", "a.safetensors", "b:c"),
                                           std::tuple("a.safetensors:", "a.safetensors", ""),
                                           std::tuple("a:b.safetensors", "a:b.safetensors", ""),
                                           std::tuple("a.npy:b", "a.npy:b", "")}) {
    const SafetensorsPlace place = SplitSafetensorsPlace(text);
    EXPECT_EQ(place.path, path) << text;
    EXPECT_EQ(place.tensor, tensor) << text;
  }
}

TEST(Safetensors, AcceptsTensorsOfOtherTypes) {
  const absl::StatusOr<std::vector<SafetensorsEntry>> entries = ParseSafetensorsHeader(
      R"({"ids":{"dtype":"I64","shape":[1,2],"data_offsets":[0,16]},
              "packed":{"dtype":"F4","shape":[3,2],"data_offsets":[16,19]},
              "none":{"dtype":"F32","shape":[0,5],"data_offsets":[19,19]},
              "four":{"dtype":"BF16","shape":[1,1,1,1],
                      "data_offsets":[19,21]}}  )",
      21);
  ASSERT_THAT(entries, IsOk());
  for (const SafetensorsEntry& entry : *entries) {
    EXPECT_FALSE(IsTable(entry)) << entry.name;
  }
}

TEST(Safetensors, TruncatedFileIsAnError) {
  const std::string bytes = SafetensorsBytes({{"w", {2}, {7, 8}}});
  const std::string path = WriteFile(FreshFolder() / "t.safetensors", bytes);
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  ASSERT_THAT(file, IsOk());
  std::filesystem::resize_file(path, bytes.size() - 3);
  EXPECT_THAT(file->Read(*file->Find("w")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       absl::StrCat("ended at byte ", bytes.size() - 3, ", want ", bytes.size())));
}

struct BadHeader {
  const char* name;
  std::string header;
  int64_t data_size;
  const char* message;
};

class BadSafetensors : public testing::TestWithParam<BadHeader> {};

TEST_P(BadSafetensors, IsRejected) {
  EXPECT_THAT(
      ParseSafetensorsHeader(GetParam().header, GetParam().data_size),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(StartsWith("not a .safetensors file: "), HasSubstr(GetParam().message))));
}

std::string One(const std::string& fields) { return "{\"w\":{" + fields + "}}"; }

INSTANTIATE_TEST_SUITE_P(
    Headers, BadSafetensors,
    testing::Values(
        BadHeader{"Empty", "", 0, "not a JSON object"},
        BadHeader{"Array", "[]", 0, "not a JSON object"},
        BadHeader{"Space", " {}", 0, "not a JSON object"},
        BadHeader{"Open", "{", 0, "not valid JSON: error at byte"},
        BadHeader{"Trailing", "{}{}", 0, "not valid JSON: error at byte"},
        BadHeader{"NotUtf8", "{\"\xff\":{}}", 0, "not valid JSON: error at byte"},
        BadHeader{"NoBytesClaimed", "{}", 4, "need 0 bytes, but its data has 4"},
        BadHeader{"Number", "{\"w\":1}", 0, "a misplaced number"},
        BadHeader{"Null", "{\"w\":null}", 0, "null"},
        BadHeader{"Bool", "{\"w\":true}", 0, "a boolean"},
        BadHeader{"ArrayForATensor", "{\"w\":[]}", 0, "a misplaced array"},
        BadHeader{"NestedMetadata", R"({"__metadata__":{"a":{}}})", 0, "an object inside"},
        BadHeader{"MetadataTwice", R"({"__metadata__":{},"__metadata__":{}})", 0,
                  "two tensors named '__metadata__'"},
        BadHeader{"NoFields", One(""), 0, "'w': want dtype, shape and"},
        BadHeader{"NoOffsets", One(R"("dtype":"F32","shape":[1])"), 4,
                  "'w': want dtype, shape and"},
        BadHeader{"FieldTwice", One(R"("dtype":"F32","dtype":"F32")"), 0, "'w': a field twice"},
        BadHeader{"UnknownField", One(R"("typ":"F32")"), 0, "unknown field 'typ'"},
        BadHeader{"TensorTwice",
                  R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                      "w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                  4, "two tensors named 'w'"},
        BadHeader{"UnknownDtype", One(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])"), 4,
                  "'w': unknown dtype 'F33'"},
        BadHeader{"DtypeNumber", One(R"("dtype":2)"), 0, "a misplaced number"},
        BadHeader{"Negative", One(R"("shape":[-1])"), 0, "a negative number"},
        BadHeader{"Fraction", One(R"("shape":[1.5])"), 0, "the number '1.5'"},
        BadHeader{"Beyond63Bits", One(R"("shape":[9223372036854775808])"), 0,
                  "a number that does not fit in 63 bits"},
        BadHeader{"Beyond64Bits", One(R"("shape":[18446744073709551616])"), 0, "the number"},
        BadHeader{"NestedShape", One(R"("shape":[[1]])"), 0, "a misplaced array"},
        BadHeader{"ObjectInShape", One(R"("shape":[{}])"), 0, "an object"},
        BadHeader{"OneOffset", One(R"("data_offsets":[0])"), 0, "want two data_offsets"},
        BadHeader{"ShapeOverflows",
                  One(R"("dtype":"F32","shape":[4294967296,4294967296],)"
                      R"("data_offsets":[0,4])"),
                  4, "overflows or is not a whole number of bytes"},
        BadHeader{"HalfAByte", One(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])"), 2,
                  "overflows or is not a whole number of bytes"},
        BadHeader{"SizeOfAnotherShape", One(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4,
                  "'w': data_offsets [0, 4], want 8 bytes from 0"},
        BadHeader{"Backwards", One(R"("dtype":"F32","shape":[0],"data_offsets":[4,0])"), 4,
                  "'w': data_offsets [4, 0]"},
        BadHeader{"PastTheEnd", One(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 4,
                  "need 8 bytes, but its data has 4"},
        BadHeader{"Hole", One(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), 8,
                  "'w': data_offsets [4, 8], want 4 bytes from 0"},
        BadHeader{"Overlap",
                  R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
                      "b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                  8, "'b': data_offsets [4, 8], want 4 bytes from 8"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Safetensors, RejectsDeepNesting) {
  EXPECT_THAT(ParseSafetensorsHeader("{\"w\":" + std::string(1 << 20, '['), 0),
              IsInvalidWith("a misplaced array"));
}

// Takes minutes if the time is quadratic in the number of tensors.
TEST(Safetensors, ReadsAHeaderOfManyTensors) {
  std::string header = "{";
  for (int i = 0; i < 200'000; ++i) {
    absl::StrAppend(&header, i == 0 ? "" : ",", "\"", i,
                    R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})");
  }
  EXPECT_THAT(ParseSafetensorsHeader(header + "}", 0), IsOk());
}

TEST(Safetensors, LongNameIsTruncatedInMessages) {
  const absl::Status status =
      ParseSafetensorsHeader("{\"" + std::string(100000, 'x') + "\":{}}", 0).status();
  EXPECT_THAT(status, IsInvalidWith("xxx...': want dtype"));
  EXPECT_LT(status.message().size(), 400);
}

// Tests every prefix of a file, and every value of every byte of its header.
class DamagedSafetensors : public testing::Test {
 protected:
  static constexpr int64_t kDataSize = 32;

  DamagedSafetensors() : path_(FreshFolder() / "t.safetensors") {}

  absl::Status Open(const std::string& bytes) const {
    return SafetensorsFile::Open(WriteFile(path_, bytes)).status();
  }

  const std::string whole_ =
      SafetensorsBytes({{"wide", {2, 3}, {1, 2, 3, 4, 5, 6}}, {"a\\u00e9", {1, 1, 2}, {7, 8}}});
  const std::string header_ = whole_.substr(8, whole_.size() - 8 - kDataSize);
  const std::filesystem::path path_;
};

TEST_F(DamagedSafetensors, RejectsEveryTruncation) {
  ASSERT_THAT(Open(whole_), IsOk());
  const auto is_refused = IsInvalidWith("not a .safetensors file: ");
  for (size_t size = 0; size < whole_.size(); ++size) {
    EXPECT_THAT(Open(whole_.substr(0, size)), is_refused) << size;
  }
  EXPECT_THAT(Open(whole_ + "x"), is_refused);
  for (size_t size = 0; size < header_.size(); ++size) {
    EXPECT_THAT(ParseSafetensorsHeader(header_.substr(0, size), kDataSize), is_refused) << size;
  }
}

TEST_F(DamagedSafetensors, RejectsEveryOtherHeaderLength) {
  for (size_t at = 0; at < 8; ++at) {
    for (const int change : {1, 2, 4, 8, 16, 32, 64, 128, 255}) {
      std::string damaged = whole_;
      damaged[at] = static_cast<char>(damaged[at] ^ change);
      EXPECT_THAT(Open(damaged), IsInvalidWith("not a .safetensors"));
    }
  }
}

}  // namespace
}  // namespace attnbias::safetensors_test
