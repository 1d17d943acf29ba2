// SPDX-License-Identifier: Apache-2.0
// Tests reading valid and damaged .npy and .safetensors files, and writing such files.
#include "client/cli/table_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/unit/support/fresh_folder.h"
#include "tests/unit/support/safetensors_writer.h"

namespace attnbias::table_file_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TableFileTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  std::string Write(const std::string& name, const std::string& bytes) const {
    return WriteFile(folder_ / name, bytes);
  }

  static std::string Read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  // Writes a tensor to a file, and returns the file's contents.
  std::string Written(const Tensor& tensor, const std::string& name) const {
    EXPECT_EQ(WriteTensorFile(tensor, Path(name)), absl::OkStatus());
    return Read(Path(name));
  }

  // Returns the error message from reading an invalid file, without the file's name.
  std::string ErrorOf(const std::string& name, const std::string& bytes,
                      const std::string& tensor = "") const {
    const std::string path = Write(name, bytes) + tensor;
    const auto table = ReadTableFile(path);
    EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string message(table.status().message());
    EXPECT_THAT(message, ::testing::StartsWith(path + ": "));
    return message.substr(std::min(message.size(), path.size() + 2));
  }

  const std::filesystem::path folder_ = FreshFolder();
};

// Returns a .npy file of version 1 with this header, padded as NumPy pads.
std::string Npy(std::string header, const std::string& data) {
  header.resize(117, ' ');
  return std::string("\x93NUMPY\x01\x00v\x00", 10) + header + "\n" + data;
}

std::string NpyF32(const std::string& shape, const std::string& data) {
  return Npy("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }", data);
}

// 1, 2, 3, 4, 5, 6.5 as NumPy writes them.
const std::string kSixFloats(
    "\x00\x00\x80?\x00\x00\x00@\x00\x00@@\x00\x00\x80@\x00\x00\xa0@\x00\x00\xd0"
    "@",
    24);

const std::string kTwoTensors =
    SafetensorsBytes(R"({"__metadata__":{"format":"pt"},)"
                     R"("a.weight":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]},)"
                     R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[24,28]}})",
                     kSixFloats + "wxyz");

TEST_F(TableFileTest, ReadsNpy) {
  const auto table = ReadTableFile(Write("t.npy", NpyF32("(2, 3)", kSixFloats)));
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->data_type(), v1::DATA_TYPE_F32);
  EXPECT_THAT(table->shape(), ElementsAre(2, 3));
  EXPECT_EQ(table->data(), kSixFloats);
}

TEST_F(TableFileTest, ReadsNpyOfVersion2) {
  std::string header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2), }";
  header.resize(115, ' ');
  const std::string data(16, 'd');
  const auto table = ReadTableFile(
      Write("t.npy", std::string("\x93NUMPY\x02\x00t\x00\x00\x00", 12) + header + "\n" + data));
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->data_type(), v1::DATA_TYPE_F64);
  EXPECT_THAT(table->shape(), ElementsAre(1, 2));
  EXPECT_EQ(table->data(), data);
}

// The order of the keys is unspecified.
TEST_F(TableFileTest, ReadsNpyKeysInAnyOrder) {
  const auto table = ReadTableFile(
      Write("t.npy", Npy("{'shape': (2,), 'fortran_order': False, 'descr': '<f2'}", "abcd")));
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->data_type(), v1::DATA_TYPE_F16);
  EXPECT_THAT(table->shape(), ElementsAre(2));
}

TEST_F(TableFileTest, RejectsBrokenNpy) {
  const std::string whole = NpyF32("(2, 3)", kSixFloats);
  EXPECT_THAT(ErrorOf("a.npy", whole.substr(0, 9)), HasSubstr("too short"));
  EXPECT_THAT(ErrorOf("a.npy", "X" + whole), HasSubstr("magic number"));
  EXPECT_THAT(ErrorOf("a.npy", whole.substr(0, 60)), HasSubstr("its header declares 118 bytes"));
  EXPECT_EQ(ErrorOf("a.npy", whole.substr(0, whole.size() - 1)),
            "got 23 bytes of data, want 24 for shape [2, 3]");
  EXPECT_EQ(ErrorOf("a.npy", whole + "x"), "got 25 bytes of data, want 24 for shape [2, 3]");
  std::string version3 = whole;
  version3[6] = 3;
  EXPECT_THAT(ErrorOf("a.npy", version3), HasSubstr("its version is 3"));
  std::string huge2("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12);
  EXPECT_THAT(ErrorOf("a.npy", huge2 + whole), HasSubstr("its header declares 4294967295 bytes"));
}

TEST_F(TableFileTest, RejectsUnsupportedNpy) {
  EXPECT_THAT(ErrorOf("a.npy", Npy("{'descr': '<f4', 'fortran_order': True, 'shape': "
                                   "(2, 3), }",
                                   kSixFloats)),
              HasSubstr("order: got Fortran order, want C order"));
  EXPECT_EQ(ErrorOf("a.npy", Npy("{'descr': '>f4', 'fortran_order': False, 'shape': "
                                 "(2, 3), }",
                                 kSixFloats)),
            "dtype: got \">f4\", want \"<f8\", \"<f4\" or \"<f2\"");
  EXPECT_EQ(ErrorOf("a.npy",
                    Npy("{'descr': '<i4', 'fortran_order': False, 'shape': (6,), }", kSixFloats)),
            "dtype: got \"<i4\", want \"<f8\", \"<f4\" or \"<f2\"");
  EXPECT_THAT(ErrorOf("a.npy", Npy("{'descr': [('a', '<f4')], "
                                   "'fortran_order': False, 'shape': (6,), }",
                                   kSixFloats)),
              HasSubstr("no descr"));
  EXPECT_THAT(ErrorOf("a.npy", NpyF32("(4294967296, 4294967296)", "")),
              HasSubstr("want nonnegative lengths and fewer than 2^63 bytes in total"));
  EXPECT_THAT(ErrorOf("a.npy", NpyF32("(99999999999999999999, )", "")),
              HasSubstr("its shape is [1e+20]"));
  EXPECT_THAT(ErrorOf("a.npy", NpyF32("(-2, 3)", "")), HasSubstr("want nonnegative lengths"));
  EXPECT_THAT(ErrorOf("a.npy", NpyF32("6", "")), HasSubstr("no shape"));
  EXPECT_THAT(ErrorOf("a.npy", NpyF32("(2, 3", "")), HasSubstr("its header is not a dictionary"));
  EXPECT_THAT(ErrorOf("a.npy", Npy("(1,)", "")), HasSubstr("its header is not a dictionary"));
  EXPECT_THAT(ErrorOf("a.npy", Npy("{'descr': '<f4', 'shape': (1,)}", "")),
              HasSubstr("no fortran_order"));
  EXPECT_EQ(ErrorOf("a.npy", NpyF32("(1024, 513)", std::string(size_t{1024} * 513 * 4, 'x'))),
            "got a tensor of 2101248 bytes, want at most 2097152 in a request; have "
            "the server mount larger ones (--tables)");
}

TEST_F(TableFileTest, ReadsATensorByName) {
  const std::string path = Write("t.safetensors", kTwoTensors);
  const auto a = ReadTableFile(path + ":a.weight");
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ(a->data_type(), v1::DATA_TYPE_F32);
  EXPECT_THAT(a->shape(), ElementsAre(3, 2));
  EXPECT_EQ(a->data(), kSixFloats);
  const auto b = ReadTableFile(path + ":b");
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(b->data_type(), v1::DATA_TYPE_BF16);
  EXPECT_EQ(b->data(), "wxyz");
}

TEST_F(TableFileTest, OnlyTensorNeedsNoName) {
  const auto table = ReadTableFile(Write(
      "t.safetensors", SafetensorsBytes(R"({"__metadata__":{},)"
                                        R"("x":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})",
                                        "12345678")));
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->data_type(), v1::DATA_TYPE_F64);
  EXPECT_EQ(table->data(), "12345678");
}

TEST_F(TableFileTest, ErrorListsAvailableTensors) {
  EXPECT_EQ(ErrorOf("t.safetensors", kTwoTensors, ":c"),
            "tensor: got \"c\", want one of a.weight, b");
  EXPECT_EQ(ErrorOf("t.safetensors", kTwoTensors), "got no tensor name, want one of :a.weight, :b");
  EXPECT_EQ(ErrorOf("t.safetensors", kTwoTensors, ":__metadata__"),
            "tensor: got \"__metadata__\", want one of a.weight, b");
}

TEST_F(TableFileTest, RejectsBrokenSafetensors) {
  EXPECT_THAT(ErrorOf("a.safetensors", SafetensorsBytes("{\"a\":", "")),
              HasSubstr("its header is not valid JSON: error at byte 6"));
  EXPECT_EQ(ErrorOf("a.safetensors", SafetensorsBytes(R"({"a":{"dtype":"I64","shape":[8],)"
                                                      R"("data_offsets":[0,64]}})",
                                                      std::string(64, 'x'))),
            "dtype: got \"I64\", want F64, F32, F16 or BF16");
  EXPECT_EQ(ErrorOf("a.safetensors", SafetensorsBytes(R"({"a":{"dtype":"I32","shape":[8],)"
                                                      R"("data_offsets":[0,32]}})",
                                                      std::string(32, 'x'))),
            "dtype: got \"I32\", want F64, F32, F16 or BF16");
}

TEST_F(TableFileTest, RejectsLargeSafetensorsTable) {
  EXPECT_EQ(ErrorOf("a.safetensors", SafetensorsBytes(R"({"a":{"dtype":"F32","shape":[1024,513],)"
                                                      R"("data_offsets":[0,2101248]}})",
                                                      std::string(2101248, 'x'))),
            "got a tensor of 2101248 bytes, want at most 2097152 in a "
            "request; have the server mount larger ones (--tables)");
}

TEST_F(TableFileTest, NamesMissingFile) {
  EXPECT_THAT(std::string(ReadTableFile(Path("no.npy")).status().message()),
              HasSubstr("no.npy: no such file"));
  EXPECT_EQ(ReadTableFile(Path("no.safetensors") + ":a").status(),
            absl::NotFoundError(Path("no.safetensors") + ": no such file"));
  EXPECT_EQ(
      ReadTableFile("weights.pt").status(),
      absl::InvalidArgumentError("got @weights.pt, want @FILE.safetensors:TENSOR or @FILE.npy"));
}

// Returns a header for six floats in `parts` equal parts.
v1::TensorHeader HeaderOf(int parts) {
  v1::TensorHeader header;
  header.set_total_bytes(24);
  header.set_fingerprint("f1");
  header.set_encoding_fingerprint("e1");
  for (int i = 0; i < parts; ++i) {
    v1::TensorPart* part = header.add_parts();
    part->set_name(absl::StrCat("part", i));
    part->set_data_type(v1::DATA_TYPE_F32);
    part->add_shape(2 / parts);
    part->add_shape(3);
    part->set_offset(i * 24 / parts);
    part->set_size_bytes(24 / parts);
  }
  return header;
}

// Returns a fetched tensor.
Tensor SixFloats(const v1::TensorHeader& header) {
  AlignedBytes bytes(static_cast<std::byte*>(std::aligned_alloc(64, 64)));
  std::memcpy(bytes.get(), kSixFloats.data(), 24);
  return Tensor(header, std::move(bytes));
}
Tensor SixFloats(int parts) { return SixFloats(HeaderOf(parts)); }

// Identical to numpy.save's output, byte for byte.
TEST_F(TableFileTest, WritesNpyAsNumpyDoes) {
  EXPECT_EQ(Written(SixFloats(1), "out.npy"), NpyF32("(2, 3)", kSixFloats));
}

TEST_F(TableFileTest, OneDimensionalNpyShapeHasAComma) {
  v1::TensorHeader header = HeaderOf(1);
  header.mutable_parts(0)->clear_shape();
  header.mutable_parts(0)->add_shape(6);
  EXPECT_EQ(Written(SixFloats(header), "o.npy"), NpyF32("(6,)", kSixFloats));
}

TEST_F(TableFileTest, WritesSafetensors) {
  const std::string file = Written(SixFloats(2), "out.safetensors");
  const std::string header = R"({"__metadata__":{"attnbias.encoding_fingerprint":"e1",)"
                             R"("attnbias.fingerprint":"f1","attnbias.resolved_spec":"{}"},)"
                             R"("part0":{"data_offsets":[0,12],"dtype":"F32","shape":[1,3]},)"
                             R"("part1":{"data_offsets":[12,24],"dtype":"F32","shape":[1,3]}})";
  const size_t padded = (8 + header.size() + 63) / 64 * 64 - 8;
  EXPECT_EQ(file, SafetensorsBytes(header + std::string(padded - header.size(), ' '), kSixFloats));
}

TEST_F(TableFileTest, SafetensorsMetadataDescribesBorderedToeplitz) {
  v1::TensorHeader header = HeaderOf(2);
  v1::PairExtent& pair = *header.mutable_resolved_spec()->mutable_pair();
  pair.set_query_offset(-1);
  pair.mutable_queries()->set_end(2);
  pair.mutable_keys()->set_begin(1);
  pair.mutable_keys()->set_end(3);
  header.mutable_parts(0)->set_name("diagonals");
  header.mutable_parts(0)->set_form(v1::FORM_TOEPLITZ);
  header.mutable_parts(0)->set_first_relative_position(-7);
  header.mutable_parts(1)->set_name("border");
  const std::string file = Written(SixFloats(header), "b.safetensors");
  for (const char* entry :
       {R"("attnbias.query_length":"2")", R"("attnbias.key_length":"2")",
        R"("attnbias.diagonals.first_relative_position":"-7")",
        R"("attnbias.border.class_query":"1")", R"("attnbias.border.class_key":"none")",
        R"(\"query_offset\":\"-1\")"}) {
    EXPECT_THAT(file, HasSubstr(entry));
  }
}

TEST_F(TableFileTest, SafetensorsMetadataHasColumnAxes) {
  v1::TensorHeader header = HeaderOf(2);
  for (const int axis : {0, 1, 1}) header.add_column_axes(axis);
  EXPECT_THAT(Written(SixFloats(header), "g.safetensors"),
              HasSubstr(R"("attnbias.column_axes":"0,1,1")"));
}

// Consecutive keys before position 0 resolve to a list.
TEST_F(TableFileTest, WritesClassTokenOfListedKeys) {
  v1::TensorHeader header = HeaderOf(1);
  v1::PairExtent& pair = *header.mutable_resolved_spec()->mutable_pair();
  for (const int64_t key : {-1, 0}) {
    pair.mutable_key_positions()->add_positions(key);
  }
  header.mutable_parts(0)->set_name("border");
  EXPECT_THAT(Written(SixFloats(header), "b.safetensors"),
              HasSubstr(R"("attnbias.border.class_key":"1")"));
}

TEST_F(TableFileTest, WritesCompleteFilesOrNone) {
  const std::string path = Write("out.npy", "old");
  ASSERT_TRUE(WriteTensorFile(SixFloats(1), path).ok());
  EXPECT_EQ(Read(path).substr(1, 5), "NUMPY");
  // A folder cannot be replaced by a file; the failure leaves nothing behind.
  std::filesystem::create_directory(Path("folder.npy"));
  const absl::Status status = WriteTensorFile(SixFloats(1), Path("folder.npy"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("folder.npy: cannot write: Is a directory"));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    files += entry.path().filename() != "out.npy" && entry.path().filename() != "folder.npy";
  }
  EXPECT_EQ(files, 0);
  EXPECT_THAT(std::string(WriteTensorFile(SixFloats(1), Path("no/such.npy")).message()),
              HasSubstr("cannot create: No such file or directory"));
}

TEST_F(TableFileTest, NpyHoldsOnePart) {
  EXPECT_EQ(
      WriteTensorFile(SixFloats(2), Path("out.npy")),
      absl::InvalidArgumentError("--out: .npy holds one part and the tensor has part0, part1; "
                                 "choose one with --part, or write a .safetensors file"));
  EXPECT_EQ(WriteTensorFile(SixFloats(2), Path("out.npy"), "part2"),
            absl::InvalidArgumentError("--part: got part2, want one of part0, part1"));
  EXPECT_FALSE(std::filesystem::exists(Path("out.npy")));
  ASSERT_TRUE(WriteTensorFile(SixFloats(2), Path("out.npy"), "part1").ok());
  EXPECT_EQ(Read(Path("out.npy")), NpyF32("(1, 3)", kSixFloats.substr(12)));
}

}  // namespace
}  // namespace attnbias::table_file_test
