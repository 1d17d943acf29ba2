// SPDX-License-Identifier: Apache-2.0
// The lists of fields in core against the contract's own messages.
#include "server/codec/field_codec.h"

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "attnbias/v1/logits.pb.h"
#include "attnbias/v1/service.pb.h"
#include "core/encoding/make_encoding.h"
#include "core/logits/term.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"

namespace attnbias::field_codec_test {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::OneofDescriptor;
using testing::ElementsAreArray;

// "RopeType" is "ROPE_TYPE_" in front of its values.
std::string PrefixOf(std::string_view enum_name) {
  std::string prefix;
  for (const char c : enum_name) {
    if (absl::ascii_isupper(c) && !prefix.empty()) prefix += '_';
    prefix += absl::ascii_toupper(c);
  }
  return prefix + "_";
}

std::vector<std::string> ValuesOf(const FieldDescriptor& field) {
  std::vector<std::string> values;
  for (int i = 1; i < field.enum_type()->value_count(); ++i) {
    EXPECT_EQ(field.enum_type()->value(i)->number(), i);
    values.emplace_back(field.enum_type()->value(i)->name());
  }
  return values;
}

// The contract may have `others` beside those of the list, and a oneof `fill`.
void ExpectSameFields(const FieldList& fields, const Descriptor& message,
                      int others = 0);

// What of a field's type a member's does not say by itself.
struct Checker {
  const FieldDescriptor& field;

  void Expect(bool fits) const { EXPECT_TRUE(fits) << field.full_name(); }
  void ExpectNumbers(const int64_t*) const {
    Expect(field.cpp_type() == FieldDescriptor::CPPTYPE_INT32 ||
           field.cpp_type() == FieldDescriptor::CPPTYPE_INT64);
  }
  void ExpectNumbers(const double*) const {
    Expect(field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE);
  }
  void ExpectNumbers(const bool*) const {
    Expect(field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL);
  }

  template <typename T>
  void operator()(const T* member) const {
    Expect(!field.is_repeated());
    ExpectNumbers(member);
  }
  template <typename T>
  void operator()(const Defaulted<T>* /*member*/) const {
    Expect(field.has_presence());
    ExpectNumbers(static_cast<T*>(nullptr));
  }
  template <typename T>
  void operator()(const std::optional<T>* /*member*/) const {
    Expect(field.has_presence());
    ExpectNumbers(static_cast<T*>(nullptr));
  }
  void operator()(const std::optional<Table>* /*member*/) const {
    Expect(!field.is_repeated() &&
           field.message_type() == v1::TableRef::descriptor());
  }
  template <typename T>
  void operator()(const std::vector<T>* /*member*/) const {
    Expect(field.is_repeated());
    ExpectNumbers(static_cast<T*>(nullptr));
  }
  void operator()(const EnumMember& member) const {
    ASSERT_NE(field.enum_type(), nullptr) << field.full_name();
    std::vector<std::string> names;
    for (const std::string_view name : member.names) {
      names.push_back(
          absl::StrCat(PrefixOf(field.enum_type()->name()), std::string(name)));
    }
    EXPECT_THAT(ValuesOf(field), ElementsAreArray(names)) << field.full_name();
  }
  void operator()(const MessageMember& member) const {
    Expect(!field.is_repeated() ||
           (member.resize != nullptr && member.most > 0));
    if (member.resize != nullptr) member.resize(1);
    ExpectSameFields(member.elements()[0], *field.message_type());
  }
};

void ExpectSameFields(const FieldList& fields, const Descriptor& message,
                      int others) {
  const OneofDescriptor* const fill = message.FindOneofByName("fill");
  if (fill != nullptr) others += fill->field_count();
  EXPECT_EQ(static_cast<int>(fields.size()) + others, message.field_count())
      << message.full_name();
  for (const Field& field : fields) {
    const auto* wire = message.FindFieldByNumber(field.number());
    ASSERT_NE(wire, nullptr)
        << message.full_name() << " has no field number " << field.number();
    EXPECT_EQ(wire->name(), std::string(field.name()));
    std::visit(Checker{*wire}, field.member());
  }
}

template <typename Registration>
void ExpectSameSpecs(const OneofDescriptor& oneof) {
  EXPECT_EQ(Registration::Names().size(), oneof.field_count());
  for (int i = 0; i < oneof.field_count(); ++i) {
    std::optional<AnySpec> spec =
        Registration::DefaultSpec(oneof.field(i)->name());
    ASSERT_TRUE(spec.has_value()) << oneof.field(i)->name();
    ExpectSameFields(spec->Fields(), *oneof.field(i)->message_type());
  }
}

TEST(Fields, AreThoseOfTheContract) {
  ExpectSameSpecs<EncodingRegistration>(
      *v1::TensorSpec::descriptor()->FindOneofByName("encoding"));
}

template <typename Value>
void ExpectSameFields(const Descriptor& message) {
  Value value;
  ExpectSameFields(value.Fields(), message);
}

TEST(Fields, OfExtentsAndOutputAreThoseOfTheContract) {
  ExpectSameFields<TableExtent>(*v1::TableExtent::descriptor());
  ExpectSameFields<PairExtent>(*v1::PairExtent::descriptor());
  ExpectSameFields<GridExtent>(*v1::GridExtent::descriptor());
  ExpectSameFields<Output>(*v1::Output::descriptor());
}

TEST(Fields, OfLogitsAreThoseOfTheContract) {
  const Descriptor& message = *v1::LogitsSpec::descriptor();
  const OneofDescriptor& term = *message.FindOneofByName("term");
  ExpectSameSpecs<TermRegistration>(term);
  ExpectSameFields(LogitsSpec().Fields(), message, term.field_count());
}

}  // namespace
}  // namespace attnbias::field_codec_test
