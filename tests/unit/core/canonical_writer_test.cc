// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>

#include "core/base/digest.h"
#include "gtest/gtest.h"

namespace attnbias::canonical_writer_test {
namespace {

using std::string_literals::operator""s;

// The bytes are part of every fingerprint and must never change.
TEST(CanonicalWriter, EncodingIsStable) {
  CanonicalWriter writer("ab", 7);
  writer.Integer(1, -2);
  writer.Real(2, 1.5);
  writer.Bytes(3, "xyz");
  EXPECT_EQ(writer.bytes(),
            "\x02\0\0\0ab\x07\0\0\0"
            "\x01\0\0\0\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF"
            "\x02\0\0\0\0\0\0\0\0\0\xF8\x3F"
            "\x03\0\0\0\x03\0\0\0\0\0\0\0xyz"s);
}

TEST(CanonicalWriter, OmitsDefaults) {
  CanonicalWriter writer("d", 1);
  const std::string empty = writer.bytes();
  writer.Integer(1, 32, 32);
  writer.Real(2, 10000, 10000);
  writer.Real(3, -0.0);
  writer.Reals(4, {});
  writer.Integers(5, {});
  writer.Bytes(6, "");
  EXPECT_EQ(writer.bytes(), empty);
}

TEST(CanonicalWriter, WritesZeroUnlessItIsTheDefault) {
  CanonicalWriter positive("d", 1);
  CanonicalWriter negative("d", 1);
  positive.Real(1, 0.0, 1);
  negative.Real(1, -0.0, 1);
  EXPECT_EQ(positive.bytes(), negative.bytes());
  EXPECT_NE(positive.bytes(), CanonicalWriter("d", 1).bytes());
}

// No two sequences of calls produce the same bytes.
TEST(CanonicalWriter, DifferentContentsHaveDifferentBytes) {
  std::set<std::string> all;
  const auto add = [&all](std::string_view domain, uint32_t version, auto write) {
    CanonicalWriter writer(domain, version);
    write(writer);
    EXPECT_TRUE(all.insert(writer.bytes()).second);
  };
  const auto nothing = [](CanonicalWriter&) {};
  add("a", 1, nothing);
  add("b", 1, nothing);
  add("a", 2, nothing);
  add("ab", 1, nothing);
  add("a", 1, [](CanonicalWriter& w) { w.Integer(1, 1); });
  add("a", 1, [](CanonicalWriter& w) { w.Integer(2, 1); });
  add("a", 1, [](CanonicalWriter& w) { w.Integers(1, {1}); });
  add("a", 1, [](CanonicalWriter& w) { w.Integers(1, {1, 2}); });
  add("a", 1, [](CanonicalWriter& w) { w.Reals(1, {1, 2}); });
  add("a", 1, [](CanonicalWriter& w) { w.Bytes(1, "x"); });
  add("a", 1, [](CanonicalWriter& w) { w.Bytes(1, "xx"); });
}

}  // namespace
}  // namespace attnbias::canonical_writer_test
