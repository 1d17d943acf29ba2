// SPDX-License-Identifier: Apache-2.0
// Tests the hand-written reader of StreamTensorResponse against protobuf's writer.
#include "client/cpp/src/chunk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "core/checksum/crc32c.h"
#include "proto/grpc_versions.h"

namespace attnbias::chunk_test {
namespace {

std::string Serialized(const std::string& data) {
  v1::StreamTensorResponse message;
  message.mutable_header()->set_fingerprint("abc");
  const std::string header = message.header().SerializeAsString();
  message.set_header_crc32c(Crc32c(header.data(), header.size()));
  message.set_offset(int64_t{1} << 40);
  message.set_data(data);
  message.set_crc32c(Crc32c(data.data(), data.size()));
  return message.SerializeAsString();
}

// Splits a message into slices that end at `cuts`.
grpc::ByteBuffer Cut(const std::string& bytes, std::vector<size_t> cuts) {
  cuts.push_back(bytes.size());
  std::vector<grpc::Slice> slices;
  size_t begin = 0;
  for (const size_t end : cuts) {
    slices.emplace_back(bytes.data() + begin, end - begin);
    begin = end;
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::StatusOr<Chunk> Read(grpc::ByteBuffer message, std::string* room) {
  return ReadChunk(&message,
                   absl::MakeSpan(reinterpret_cast<std::byte*>(room->data()), room->size()),
                   Placement::kCached);
}

void ExpectWhole(const absl::StatusOr<Chunk>& chunk, const std::string& room,
                 const std::string& data) {
  ASSERT_TRUE(chunk.ok()) << chunk.status();
  EXPECT_EQ(chunk->header->fingerprint(), "abc");
  EXPECT_EQ(chunk->offset, int64_t{1} << 40);
  EXPECT_EQ(chunk->size, static_cast<int64_t>(data.size()));
  EXPECT_EQ(room.substr(0, data.size()), data);
}

TEST(ReadChunk, ReadsAcrossAnySliceBoundary) {
  const std::string data = "the payload of a chunk";
  const std::string bytes = Serialized(data);
  for (size_t a = 0; a <= bytes.size(); ++a) {
    for (size_t b = a; b <= bytes.size(); ++b) {
      std::string room(data.size() + 3, '-');
      const auto chunk = Read(Cut(bytes, {a, b}), &room);
      ExpectWhole(chunk, room, data);
      EXPECT_EQ(room.substr(data.size()), "---");
    }
  }
}

// Covers every distance from a cache line boundary, on both sides.
TEST(ReadChunk, WritesToAnyAlignment) {
  std::string data(300, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7);
  for (size_t begin = 0; begin < 65; ++begin) {
    for (size_t size : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, 300 - begin}) {
      const std::string part = data.substr(begin, size);
      alignas(64) char room[400];
      std::fill(std::begin(room), std::end(room), '-');
      grpc::ByteBuffer message = Cut(Serialized(part), {10});
      const auto chunk =
          ReadChunk(&message, absl::MakeSpan(reinterpret_cast<std::byte*>(room) + begin, 300),
                    Placement::kStreamed);
      ASSERT_TRUE(chunk.ok()) << chunk.status();
      EXPECT_EQ(std::string(room, 400),
                std::string(begin, '-') + part + std::string(400 - begin - part.size(), '-'));
    }
  }
}

TEST(ReadChunk, SkipsFieldsOfNewerServers) {
  const std::string data = "data";
  // Field 15: varint, length-delimited, fixed64; then the message.
  const std::string newer = std::string("\x78\x05", 2) + std::string("\x7a\x02hi", 4) +
                            std::string("\x79", 1) + std::string(8, 'x');
  std::string room(10, '-');
  ExpectWhole(Read(Cut(newer + Serialized(data), {3}), &room), room, data);
}

TEST(ReadChunk, RejectsEveryTruncation) {
  const std::string data = "some data";
  const std::string bytes = Serialized(data);
  // A message truncated at the end of a field is a different message, not a truncated one.
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::string room(data.size(), '-');
    const auto chunk = Read(Cut(bytes.substr(0, size), {}), &room);
    v1::StreamTensorResponse oracle;
    const bool parses = oracle.ParseFromString(bytes.substr(0, size));
    const bool matches = parses && oracle.has_header() == oracle.has_header_crc32c() &&
                         oracle.crc32c() == Crc32c(oracle.data().data(), oracle.data().size());
    EXPECT_EQ(chunk.ok(), matches) << size;
    if (!matches) {
      EXPECT_EQ(chunk.status().code(), absl::StatusCode::kDataLoss);
    }
  }
}

// Outside the header, a flipped bit may turn the checksum into an unknown field; the header itself
// is then intact.
TEST(ReadChunk, RejectsEveryBitFlipInHeader) {
  LogLibrariesBy([](LibraryLogLevel, std::string_view) {});
  v1::StreamTensorResponse message;
  message.mutable_header()->set_fingerprint("abc");
  message.mutable_header()->set_total_bytes(24);
  message.mutable_header()->add_parts()->add_shape(6);
  const std::string header = message.header().SerializeAsString();
  message.set_header_crc32c(Crc32c(header.data(), header.size()));
  const std::string bytes = message.SerializeAsString();
  const size_t begin = bytes.find(header);
  std::string room;
  const auto whole = Read(Cut(bytes, {}), &room);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->header->SerializeAsString(), header);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    const auto chunk = Read(Cut(damaged, {begin + 3}), &room);
    const bool inside = bit / 8 - begin < header.size();
    if (inside) {
      EXPECT_EQ(chunk.status().code(), absl::StatusCode::kDataLoss) << bit;
    } else if (chunk.ok() && chunk->header.has_value()) {
      EXPECT_EQ(chunk->header->SerializeAsString(), header) << bit;
    }
  }
}

TEST(ReadChunk, MergesSplitHeader) {
  v1::StreamTensorResponse begin, end;
  begin.mutable_header()->set_fingerprint("abc");
  end.mutable_header()->set_total_bytes(24);
  const std::string whole = begin.header().SerializeAsString() + end.header().SerializeAsString();
  end.set_header_crc32c(Crc32c(whole.data(), whole.size()));
  std::string room;
  const auto chunk = Read(Cut(begin.SerializeAsString() + end.SerializeAsString(), {}), &room);
  ASSERT_TRUE(chunk.ok()) << chunk.status();
  EXPECT_EQ(chunk->header->fingerprint(), "abc");
  EXPECT_EQ(chunk->header->total_bytes(), 24);
}

TEST(ReadHeader, RejectsAnswerToAnotherRequest) {
  v1::StreamTensorResponse message;
  const auto read = [&message](uint32_t request_crc32c) {
    message.mutable_header();
    message.set_header_crc32c(0);
    grpc::ByteBuffer bytes = Cut(message.SerializeAsString(), {});
    return ReadHeader(&bytes, request_crc32c).status();
  };
  EXPECT_EQ(read(0), absl::DataLossError("request_crc32c: got none, want 00000000"));
  message.set_request_crc32c(7);
  EXPECT_EQ(read(7), absl::OkStatus());
  EXPECT_EQ(read(0xabcdef01), absl::DataLossError("request_crc32c: got 00000007, want abcdef01"));
}

TEST(ReadChunk, RejectsDataBeyondTheBuffer) {
  std::string room(3, '-');
  const auto chunk = Read(Cut(Serialized("four"), {}), &room);
  EXPECT_EQ(chunk.status(), absl::DataLossError("chunk: got 4 bytes of data, want at most the "
                                                "3 remaining"));
  EXPECT_EQ(room, "---");
}

TEST(ReadChunk, ErrorStatesLargestOffset) {
  v1::StreamTensorResponse message;
  message.set_offset(std::numeric_limits<int64_t>::max());
  message.set_data("four");
  std::string room(4, '-');
  const auto chunk = Read(Cut(message.SerializeAsString(), {}), &room);
  EXPECT_TRUE(absl::StrContains(chunk.status().message(),
                                "4 bytes at offset 9223372036854775807 have CRC-32C"))
      << chunk.status();
}

}  // namespace
}  // namespace attnbias::chunk_test
