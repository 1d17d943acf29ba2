// SPDX-License-Identifier: Apache-2.0
#include "attnbias/v1/service.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/service/messages.h"

namespace attnbias::known_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

void AddUnknown(google::protobuf::Message* message, int number) {
  message->GetReflection()->MutableUnknownFields(message)->AddVarint(number, 1);
}

void ExpectUnknown(const google::protobuf::Message& message,
                   const std::string& start) {
  const absl::Status status = CheckKnown(message);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), StartsWith(start));
  EXPECT_THAT(std::string(status.message()), HasSubstr(ATTNBIAS_VERSION));
}

TEST(CheckKnown, LetsAnOrdinaryRequestPass) {
  v1::StreamTensorRequest request;
  request.mutable_spec()->mutable_alibi()->set_num_heads(8);
  request.mutable_spec()->mutable_alibi()->set_variant(
      v1::ALIBI_VARIANT_KEY_FROM_END);
  request.mutable_spec()->mutable_table()->add_position_ids()->add_positions(1);
  EXPECT_EQ(CheckKnown(request), absl::OkStatus());
}

TEST(CheckKnown, SeesFieldsAtEveryDepth) {
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

TEST(CheckKnown, SeesEnumValues) {
  v1::GetTensorRequest request;
  request.mutable_spec()->mutable_t5()->set_bucket_rule(
      static_cast<v1::BucketRule>(42));
  ExpectUnknown(request, "spec.t5.bucket_rule: enum value 42 ");
}

}  // namespace
}  // namespace attnbias::known_test
