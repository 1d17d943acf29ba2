// SPDX-License-Identifier: Apache-2.0
#include "server/service/messages.h"

#include <string>

#include "attnbias/v1/service.pb.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "grpcpp/support/slice.h"
#include "gtest/gtest.h"
#include "tests/unit/support/engine_harness.h"

namespace attnbias::messages_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

int64_t SizeOfBytes(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return Measure(grpc::ByteBuffer(&slice, 1), *v1::GetTensorRequest::descriptor()).decoded_bytes;
}

int64_t SizeOfMessage(const v1::GetTensorRequest& request) {
  return SizeOfBytes(request.SerializeAsString());
}

// Checks that the message does not exceed its bound.
void ExpectBound(const v1::GetTensorRequest& request) {
  EXPECT_GE(SizeOfMessage(request), static_cast<int64_t>(request.SpaceUsedLong()))
      << request.ByteSizeLong() << " bytes";
}

TEST(DecodedSize, BoundsMemoryOfMessage) {
  ExpectBound({});
  v1::GetTensorRequest kerple;
  for (int i = 0; i < 10000; ++i) {
    kerple.mutable_spec()->mutable_kerple()->add_p(i);
  }
  ExpectBound(kerple);
  v1::GetTensorRequest positions;
  auto& list = *positions.mutable_spec()->mutable_pair()->mutable_key_positions();
  for (int i = 0; i < 10000; ++i) list.add_positions(i % 100);
  ExpectBound(positions);
  v1::GetTensorRequest table;
  table.mutable_spec()->mutable_t5()->mutable_table()->mutable_inline_table()->set_data(
      std::string(100000, 'x'));
  ExpectBound(table);
}

TEST(DecodedSize, CountsEmptyElements) {
  v1::GetTensorRequest layers;
  for (int i = 0; i < 1000; ++i) {
    layers.mutable_spec()->mutable_mlp_bias()->add_layers();
  }
  ExpectBound(layers);
  EXPECT_GT(SizeOfMessage(layers), 50 * static_cast<int64_t>(layers.ByteSizeLong()));
  v1::GetTensorRequest lists;
  for (int i = 0; i < 1000; ++i) {
    lists.mutable_spec()->mutable_table()->add_position_ids();
  }
  ExpectBound(lists);
}

// Protobuf keeps unknown fields, which are refused after parsing.
TEST(DecodedSize, BoundsMemoryOfUnknownFields) {
  for (const std::string& field : {std::string("\xf8\x7f\x01"), std::string("\xfa\x7f\x00", 3),
                                   std::string("\xfd\x7f\x01\x01\x01\x01")}) {
    std::string bytes;
    for (int i = 0; i < 10000; ++i) bytes += field;
    v1::GetTensorRequest request;
    ASSERT_TRUE(request.ParseFromString(bytes));
    EXPECT_GE(SizeOfBytes(bytes), static_cast<int64_t>(request.SpaceUsedLong()));
    EXPECT_GE(SizeOfBytes(bytes), 48 * 10000);
  }
}

TEST(DecodedSize, StaysCloseToSizeOfNumbers) {
  v1::GetTensorRequest request;
  auto& kerple = *request.mutable_spec()->mutable_kerple();
  for (int i = 0; i < 10000; ++i) kerple.add_p(i);
  EXPECT_LT(SizeOfMessage(request), 3 * 8 * 10000);
}

TEST(DecodedSize, StopsAtInvalidBytes) {
  v1::GetTensorRequest request;
  request.mutable_spec()->mutable_alibi()->set_num_heads(8);
  const std::string bytes = request.SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_LT(SizeOfBytes(bytes.substr(0, size)), 4096);
  }
  EXPECT_LT(SizeOfBytes(std::string(1000, '\xff')), 4096);
  // A length beyond the end, in a message and in an unknown field.
  EXPECT_LT(SizeOfBytes("\x0a\xff\xff\xff\x7f"), 4096);
  EXPECT_LT(SizeOfBytes("\x7a\xff\xff\xff\x7f"), 4096);
  // Nested more deeply than any message.
  std::string deep;
  for (int i = 0; i < 5000 && deep.size() < 60000; ++i) {
    std::string length;
    for (size_t left = deep.size();; left >>= 7) {
      const bool more = left >= 128;
      length += static_cast<char>((left & 127) | (more ? 128 : 0));
      if (!more) break;
    }
    deep = "\x0a" + length + deep;
  }
  EXPECT_LT(SizeOfBytes(deep), 1 << 20);
}

// A spec, or a string in it, that claims more bytes than the request has.
TEST(FieldsEndInside, RejectsLengthsBeyondTheRequest) {
  const auto inside = [](const std::string& bytes) {
    const grpc::Slice slice(bytes);
    return Measure(grpc::ByteBuffer(&slice, 1), *v1::GetTensorRequest::descriptor()).is_whole;
  };
  EXPECT_TRUE(inside(""));
  v1::GetTensorRequest request;
  request.mutable_spec()->mutable_t5()->mutable_table()->set_name("a table");
  const std::string bytes = request.SerializeAsString();
  EXPECT_TRUE(inside(bytes));
  for (size_t size = 1; size < bytes.size(); ++size) {
    EXPECT_FALSE(inside(bytes.substr(0, size))) << size;
  }
  const std::string huge = "\x80\x80\x80\x80\x07";
  EXPECT_FALSE(inside(std::string(2, '\0')));  // not a tag
  EXPECT_FALSE(inside("\n" + huge + bytes.substr(2)));
  EXPECT_FALSE(inside("\n" + huge + "\x82\x7d" + huge + "text"));
  // A group, which no message has: protobuf would keep its contents.
  EXPECT_FALSE(inside("\xfb\x7f\x08\x01\xfc\x7f"));
}

void AddUnknown(google::protobuf::Message* message, int number) {
  message->GetReflection()->MutableUnknownFields(message)->AddVarint(number, 1);
}

void ExpectUnknown(const google::protobuf::Message& message, const std::string& start) {
  const absl::Status status = CheckKnown(message);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), StartsWith(start));
  EXPECT_THAT(std::string(status.message()), HasSubstr(ATTNBIAS_VERSION));
}

TEST(CheckKnown, FindsUnknownFieldsAtEveryDepth) {
  v1::GetTensorRequest top;
  AddUnknown(&top, 99);
  ExpectUnknown(top, "request: field number 99 ");

  v1::GetTensorRequest deep;
  AddUnknown(deep.mutable_spec()->mutable_t5()->mutable_table(), 77);
  ExpectUnknown(deep, "spec.t5.table: field number 77 ");

  v1::GetTensorRequest listed;
  listed.mutable_spec()->mutable_table()->add_position_ids();
  AddUnknown(listed.mutable_spec()->mutable_table()->add_position_ids(), 5);
  ExpectUnknown(listed, "spec.table.position_ids[1]: field number 5 ");
}

TEST(CheckKnown, FindsUnknownValuesInPackedLists) {
  v1::GetServerInfoResponse info;
  for (const int type : {1, 2, 99}) {
    info.add_data_types(static_cast<v1::DataType>(type));
  }
  ExpectUnknown(info, "data_types[2]: enum value 99 ");
  info.mutable_data_types()->RemoveLast();
  EXPECT_TRUE(CheckKnown(info).ok());
}

TEST(CheckKnown, TreatsFieldOfWrongTypeAsUnknown) {
  v1::GetTensorRequest request;
  AddUnknown(&request, v1::GetTensorRequest::kSpecFieldNumber);
  ExpectUnknown(request, "request: field number 1 ");
}

TEST(Headers, DescribePartsAndDerivedValues) {
  const EngineHarness engine;
  const PlanPtr plan = engine.Plan(
      Parse<v1::TensorSpec>("rotary {head_dim: 4 rope_theta: 4} table {positions {end: 5}}"));
  auto want = Parse<v1::TensorHeader>(
      "parts {name: 'cos' data_type: DATA_TYPE_F32 form: FORM_TABLE"
      "  shape: [5, 4] size_bytes: 80}"
      "parts {name: 'sin' data_type: DATA_TYPE_F32 form: FORM_TABLE"
      "  shape: [5, 4] offset: 80 size_bytes: 80}"
      "total_bytes: 160 "
      "resolved_spec {"
      "  rotary {head_dim: 4 rope_theta: 4 partial_rotary_factor: 1"
      "    layout: ROTARY_LAYOUT_HALF"
      "    angle: ANGLE_PRECISION_EXACT}"
      "  table {positions {begin: 0 end: 5}}"
      "  output {data_type: DATA_TYPE_F32 form: FORM_TABLE"
      "    values: VALUES_BIAS scale: 1}}"
      "derived {name: 'inverse_frequencies' values: [1, 0.5]}"
      "derived {name: 'attention_factor' values: 1}"
      "derived {name: 'rope_theta' values: 4}");
  want.set_fingerprint(plan->fingerprint());
  want.set_encoding_fingerprint(plan->encoding_fingerprint());
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(HeaderOf(*plan), want))
      << HeaderOf(*plan).DebugString();
}

}  // namespace
}  // namespace attnbias::messages_test
