// SPDX-License-Identifier: Apache-2.0
// A generated parser must be able to read hand-made frames.
#include <memory>
#include <string>
#include <vector>

#include "core/checksum/crc32c.h"
#include "gtest/gtest.h"
#include "server/service/messages.h"

namespace attnbias::frame_test {
namespace {

// Returns a chunk with bytes of its own, split into `pieces` pieces.
Chunk MakeChunk(int64_t size, int pieces, std::weak_ptr<const void>* owner) {
  auto bytes = std::make_shared<std::vector<std::byte>>(size);
  for (int64_t i = 0; i < size; ++i) {
    (*bytes)[i] = static_cast<std::byte>(i * 7);
  }
  Chunk chunk;
  chunk.owner = bytes;
  chunk.memory = absl::Span<const std::byte>(*bytes);
  for (int i = 0; i < pieces; ++i) {
    const int64_t begin = size * i / pieces;
    chunk.pieces.push_back(chunk.memory.subspan(begin, size * (i + 1) / pieces - begin));
  }
  chunk.crc32c = 0xfedcba98;
  *owner = bytes;
  return chunk;
}

std::string Payload(const Chunk& chunk) {
  std::string bytes;
  for (absl::Span<const std::byte> piece : chunk.pieces) {
    bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return bytes;
}

std::string Joined(const grpc::ByteBuffer& frame) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(frame.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

template <typename Message>
Message Parse(const grpc::ByteBuffer& frame) {
  Message message;
  EXPECT_TRUE(message.ParseFromString(Joined(frame)));
  EXPECT_TRUE(message.GetReflection()->GetUnknownFields(message).empty());
  return message;
}

grpc::ByteBuffer FrameStreamChunk(const Chunk& chunk, int64_t offset) {
  v1::StreamTensorResponse response;
  response.set_offset(offset);
  return FrameChunk(response, chunk);
}

v1::TensorHeader SomeHeader() {
  v1::TensorHeader header;
  header.set_total_bytes(1 << 20);
  header.set_fingerprint(std::string(64, 'f'));
  header.add_parts()->set_name("dense");
  return header;
}

// Checks that the message has the checksum of its header's bytes. SerializeAsString returns the
// bytes that the server sent, since the server writes them with the same code.
template <typename Message>
void ExpectChecksum(const Message& message) {
  const std::string header = message.header().SerializeAsString();
  EXPECT_TRUE(message.has_header_crc32c());
  EXPECT_EQ(message.header_crc32c(), Crc32c(header.data(), header.size()));
  EXPECT_EQ(message.request_crc32c(), 7U);
}

TEST(Frame, ChecksumOfARequestIsThatOfAllItsSlices) {
  const std::string bytes = "123456789";
  const std::vector<grpc::Slice> slices = {grpc::Slice(bytes.substr(0, 4)), grpc::Slice(),
                                           grpc::Slice(bytes.substr(4))};
  EXPECT_EQ(ChecksumOf(grpc::ByteBuffer(slices.data(), slices.size())), 0xe3069283);
  EXPECT_EQ(ChecksumOf(grpc::ByteBuffer(slices.data() + 1, 1)), 0U);
}

TEST(Frame, HeaderCarriesItsChecksum) {
  ExpectChecksum(
      Parse<v1::DescribeTensorResponse>(FrameHeader<v1::DescribeTensorResponse>(SomeHeader(), 7)));
  v1::LogitsHeader logits;
  logits.set_width(7);
  const auto message =
      Parse<v1::ComputeLogitsResponse>(FrameHeader<v1::ComputeLogitsResponse>(logits, 7));
  ExpectChecksum(message);
  EXPECT_EQ(message.header().width(), 7);
}

// The lengths are on both sides of each varint size boundary.
TEST(Frame, HeaderOfAnyLengthIsParsed) {
  for (const size_t size : {0, 120, 127, 128, 16380, 16384, 1 << 21}) {
    v1::TensorHeader header;
    header.set_fingerprint(std::string(size, 'f'));
    const auto message =
        Parse<v1::DescribeTensorResponse>(FrameHeader<v1::DescribeTensorResponse>(header, 7));
    EXPECT_TRUE(message.has_header());
    EXPECT_EQ(message.header().fingerprint(), header.fingerprint());
    ExpectChecksum(message);
  }
}

TEST(Frame, EmptyChunkHasOnlyTheHeader) {
  const auto message = Parse<v1::StreamTensorResponse>(
      FrameChunk(v1::StreamTensorResponse(), Chunk(),
                 SerializeHeader<v1::StreamTensorResponse>(SomeHeader(), 7)));
  EXPECT_EQ(message.header().SerializeAsString(), SomeHeader().SerializeAsString());
  ExpectChecksum(message);
  EXPECT_EQ(message.offset(), 0);
  EXPECT_EQ(message.crc32c(), 0U);
  EXPECT_TRUE(message.data().empty());
}

class ChunkSizes : public testing::TestWithParam<int64_t> {};

// Sizes on both sides of every length at which a varint grows by a byte, and of the size up to
// which gRPC inlines bytes into a slice.
INSTANTIATE_TEST_SUITE_P(Frame, ChunkSizes,
                         testing::Values(1, 23, 24, 127, 128, 16383, 16384, 2097151, 2097152));

TEST_P(ChunkSizes, StreamChunkIsParsed) {
  for (int64_t offset : {int64_t{0}, int64_t{127}, int64_t{1} << 40}) {
    std::weak_ptr<const void> owner;
    const Chunk chunk = MakeChunk(GetParam(), 3, &owner);
    const auto message = Parse<v1::StreamTensorResponse>(FrameStreamChunk(chunk, offset));
    EXPECT_FALSE(message.has_header());
    EXPECT_FALSE(message.has_header_crc32c());
    EXPECT_FALSE(message.has_request_crc32c());
    EXPECT_EQ(message.offset(), offset);
    EXPECT_EQ(message.crc32c(), 0xfedcba98);
    EXPECT_EQ(message.data(), Payload(chunk));
  }
}

TEST_P(ChunkSizes, ChunkWithHeaderIsParsed) {
  std::weak_ptr<const void> owner;
  const Chunk chunk = MakeChunk(GetParam(), 2, &owner);
  v1::StreamTensorResponse response;
  response.set_offset(127);
  const auto message = Parse<v1::StreamTensorResponse>(
      FrameChunk(response, chunk, SerializeHeader<v1::StreamTensorResponse>(SomeHeader(), 7)));
  EXPECT_EQ(message.offset(), 127);
  EXPECT_EQ(message.header().SerializeAsString(), SomeHeader().SerializeAsString());
  ExpectChecksum(message);
  EXPECT_EQ(message.crc32c(), 0xfedcba98);
  EXPECT_EQ(message.data(), Payload(chunk));
}

TEST_P(ChunkSizes, DataAfterHeaderIsAligned) {
  std::weak_ptr<const void> owner;
  const Chunk chunk = MakeChunk(GetParam(), 1, &owner);
  v1::TensorHeader header;
  for (size_t size = 0; size < 2 * kDataAlignment; ++size) {
    header.set_fingerprint(std::string(size, 'f'));
    const grpc::ByteBuffer frame = FrameChunk(v1::GetTensorResponse(), chunk,
                                              SerializeHeader<v1::GetTensorResponse>(header, 7));
    EXPECT_EQ((Joined(frame).size() - GetParam()) % kDataAlignment, 0U);
    EXPECT_EQ(Parse<v1::GetTensorResponse>(frame).data(), Payload(chunk));
  }
}

TEST(Frame, ReferencesMemoryAndKeepsItAlive) {
  std::weak_ptr<const void> owner;
  const std::byte* memory = nullptr;
  grpc::ByteBuffer frame;
  {
    const Chunk chunk = MakeChunk(4096, 1, &owner);
    memory = chunk.memory.data();
    frame = FrameStreamChunk(chunk, 0);
  }
  EXPECT_FALSE(owner.expired());
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(frame.Dump(&slices).ok());
  EXPECT_EQ(static_cast<const void*>(slices.back().begin()), memory);
  slices.clear();
  frame.Clear();
  EXPECT_TRUE(owner.expired());
}

}  // namespace
}  // namespace attnbias::frame_test
