// SPDX-License-Identifier: Apache-2.0
// CRC-32C: published vectors, the definition, and the algebra.
#include "core/checksum/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace attnbias::crc32c_test {
namespace {

// RFC 3720, appendix B.4, including its SCSI read command.
struct Vector {
  std::string name;
  std::vector<uint8_t> data;
  uint32_t crc;
};

std::vector<Vector> PublishedVectors() {
  std::vector<uint8_t> ascending(32);
  std::iota(ascending.begin(), ascending.end(), uint8_t{0});
  const std::vector<uint8_t> descending(ascending.rbegin(), ascending.rend());
  std::vector<uint8_t> read(48);
  read[0] = 0x01;
  read[1] = 0xc0;
  read[16] = 0x14;
  read[22] = 0x04;
  read[27] = 0x14;
  read[31] = 0x18;
  read[32] = 0x28;
  read[40] = 0x02;
  const std::string check = "123456789";
  return {{"Zeros", std::vector<uint8_t>(32, 0x00), 0x8a9136aa},
          {"Ones", std::vector<uint8_t>(32, 0xff), 0x62a8ab43},
          {"Ascending", ascending, 0x46dd794e},
          {"Descending", descending, 0x113fdb5c},
          {"ScsiRead", read, 0xd9963a56},
          {"CatalogueCheck", {check.begin(), check.end()}, 0xe3069283},
          {"Empty", {}, 0}};
}

std::vector<uint8_t> RandomBytes(size_t size) {
  std::mt19937 random(20240601);
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// The definition: RFC 3720's register, one bit at a time.
uint32_t BitwiseCrc32c(uint32_t crc, const uint8_t* data, size_t size) {
  crc = ~crc;
  for (size_t i = 0; i < size; ++i) {
    crc ^= data[i];
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    }
  }
  return ~crc;
}

TEST(Crc32c, MatchesPublishedVectors) {
  for (const Vector& vector : PublishedVectors()) {
    EXPECT_EQ(Crc32c(vector.data.data(), vector.data.size()), vector.crc) << vector.name;
  }
}

// Covers every length around each loop's bounds, at every alignment.
TEST(Crc32c, MatchesBitwiseDefinition) {
  const std::vector<uint8_t> bytes = RandomBytes(40000);
  for (size_t size = 0; size < 1100; ++size) {
    const size_t at = size % 67;
    ASSERT_EQ(ExtendCrc32c(0x12345678, &bytes[at], size),
              BitwiseCrc32c(0x12345678, &bytes[at], size))
        << "size " << size << " at " << at;
  }
  for (size_t size : {12287, 12288, 12289, 13056, 24576, 39000}) {
    ASSERT_EQ(ExtendCrc32c(0, &bytes[3], size), BitwiseCrc32c(0, &bytes[3], size))
        << "size " << size;
  }
}

TEST(Crc32c, ExtendsAcrossAnySplit) {
  const std::vector<uint8_t> bytes = RandomBytes(100000);
  const uint32_t whole = BitwiseCrc32c(0, bytes.data(), bytes.size());
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    uint32_t crc = 0;
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = std::min<size_t>(random() % 30000, bytes.size() - at);
      crc = ExtendCrc32c(crc, &bytes[at], size);
      at += size;
    }
    ASSERT_EQ(crc, whole);
  }
}

TEST(Crc32cShift, CombinesAdjacentChecksums) {
  const std::vector<uint8_t> bytes = RandomBytes(70000);
  const uint32_t whole = BitwiseCrc32c(0, bytes.data(), bytes.size());
  for (size_t split : {0, 1, 2, 7, 255, 256, 4096, 65535, 69999, 70000}) {
    const Crc32cShift shift(bytes.size() - split);
    const uint32_t a = BitwiseCrc32c(0, bytes.data(), split);
    const uint32_t b = BitwiseCrc32c(0, bytes.data() + split, bytes.size() - split);
    EXPECT_EQ(shift.Combine(a, b), whole) << "split " << split;
  }
}

TEST(Crc32cShift, ExtractsSliceFromPrefixChecksums) {
  const std::vector<uint8_t> bytes = RandomBytes(10000);
  std::vector<uint32_t> prefix = {0};
  for (uint8_t byte : bytes) {
    prefix.push_back(BitwiseCrc32c(prefix.back(), &byte, 1));
  }
  constexpr size_t kRow = 1234;
  const Crc32cShift row(kRow);
  for (size_t begin = 0; begin + kRow <= bytes.size(); begin += 97) {
    ASSERT_EQ(prefix[begin + kRow] ^ row(prefix[begin]), BitwiseCrc32c(0, &bytes[begin], kRow))
        << "begin " << begin;
  }
}

// Uses lengths that no buffer can have: appending a and then b zeros equals appending a + b.
TEST(Crc32cShift, AddsLengths) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 100; ++round) {
    const uint64_t a = random() >> 1;
    const uint64_t b = random() >> 1;
    const auto crc = static_cast<uint32_t>(random());
    ASSERT_EQ(Crc32cShift(a)(Crc32cShift(b)(crc)), Crc32cShift(a + b)(crc));
  }
}

}  // namespace
}  // namespace attnbias::crc32c_test
