// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/message_mutator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/reflection.h"
#include "proto/grpc_versions.h"

// libFuzzer's own byte mutation.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace attnbias {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// The most bytes that one mutation adds to a string.
constexpr size_t kMoreBytes = 64;

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  bool OneIn(int n) { return Below(n) == 0; }

  // Changes one field of `message`, or of a nested message.
  void Mutate(Message* message) {
    const FieldDescriptor* field = Choose(*message);
    if (field == nullptr) return;
    const Reflection& reflection = *message->GetReflection();
    const bool may_be_absent = field->is_repeated() || field->has_presence();
    if (may_be_absent && OneIn(12)) {
      reflection.ClearField(message, field);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      MutateMessageIn(message, *field);
    } else {
      MutateScalarIn(message, *field);
    }
  }

 private:
  int Below(int end) { return std::uniform_int_distribution<>(0, end - 1)(random_); }

  // Returns a field: usually one that is set, if there is one.
  const FieldDescriptor* Choose(const Message& message) {
    std::vector<const FieldDescriptor*> set;
    message.GetReflection()->ListFields(message, &set);
    if (!set.empty() && !OneIn(4)) return set[Below(set.size())];
    const int count = message.GetDescriptor()->field_count();
    return count == 0 ? nullptr : message.GetDescriptor()->field(Below(count));
  }

  void MutateMessageIn(Message* owner, const FieldDescriptor& field) {
    const Reflection& reflection = *owner->GetReflection();
    if (!field.is_repeated()) {
      return Mutate(reflection.MutableMessage(owner, &field));
    }
    const int size = reflection.FieldSize(*owner, &field);
    if (size == 0 || OneIn(4)) {
      Message* added = reflection.AddMessage(owner, &field);
      if (size > 0 && OneIn(2)) {
        added->CopyFrom(reflection.GetRepeatedMessage(*owner, &field, Below(size)));
      }
    } else if (OneIn(4)) {
      reflection.RemoveLast(owner, &field);
    } else {
      Mutate(reflection.MutableRepeatedMessage(owner, &field, Below(size)));
    }
  }

  void MutateScalarIn(Message* owner, const FieldDescriptor& field) {
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return Change<int32_t>(owner, field, &Reflection::GetInt32, &Reflection::SetInt32);
      case FieldDescriptor::CPPTYPE_INT64:
        return Change<int64_t>(owner, field, &Reflection::GetInt64, &Reflection::SetInt64);
      case FieldDescriptor::CPPTYPE_UINT32:
        return Change<uint32_t>(owner, field, &Reflection::GetUInt32, &Reflection::SetUInt32);
      case FieldDescriptor::CPPTYPE_UINT64:
        return Change<uint64_t>(owner, field, &Reflection::GetUInt64, &Reflection::SetUInt64);
      case FieldDescriptor::CPPTYPE_FLOAT:
        return Change<float>(owner, field, &Reflection::GetFloat, &Reflection::SetFloat);
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return Change<double>(owner, field, &Reflection::GetDouble, &Reflection::SetDouble);
      case FieldDescriptor::CPPTYPE_BOOL:
        return Change<bool>(owner, field, &Reflection::GetBool, &Reflection::SetBool);
      case FieldDescriptor::CPPTYPE_STRING:
        return Change<std::string>(owner, field, &Reflection::GetString, &Reflection::SetString);
      case FieldDescriptor::CPPTYPE_ENUM:
        // The contract has no repeated enum field.
        return owner->GetReflection()->SetEnumValue(owner, &field,
                                                    Below(field.enum_type()->value_count() + 1));
      default:  // not a field of the contract
        return;
    }
  }

  template <typename T>
  void Change(Message* owner, const FieldDescriptor& field,
              T (Reflection::*get)(const Message&, const FieldDescriptor*) const,
              void (Reflection::*set)(Message*, const FieldDescriptor*, T) const) {
    const Reflection& reflection = *owner->GetReflection();
    if (!field.is_repeated()) {
      (reflection.*set)(owner, &field, Other<T>((reflection.*get)(*owner, &field)));
      return;
    }
    const auto list = reflection.GetMutableRepeatedFieldRef<T>(owner, &field);
    const int size = list.size();
    if (size == 0 || OneIn(4)) {
      // Doubling reaches long lists quickly.
      const int more = OneIn(4) ? std::max(size, 1) : 1;
      for (int i = 0; i < more; ++i) {
        list.Add(Other<T>(i < size ? list.Get(i) : T()));
      }
    } else if (OneIn(4)) {
      list.RemoveLast();
    } else {
      const int i = Below(size);
      list.Set(i, Other<T>(list.Get(i)));
    }
  }

  template <typename T>
  T Other(T value) {
    if constexpr (std::is_same_v<T, std::string>) {
      return OtherText(std::move(value));
    } else if constexpr (std::is_same_v<T, bool>) {
      return !value;
    } else {
      return OtherNumber(value);
    }
  }

  template <typename T>
  T OtherNumber(T value) {
    using Limits = std::numeric_limits<T>;
    switch (Below(8)) {
      case 0:
        return static_cast<T>(Below(100));
      case 1:  // where integers and their sums overflow
        return OneIn(2) ? Limits::max() : Limits::lowest();
      case 2: {  // close to typical bounds
        const double power = std::ldexp(1.0, Below(sizeof(T) * 8 - 2));
        return static_cast<T>(power) + static_cast<T>(Below(3)) - T{1};
      }
      case 3:
        return value == Limits::lowest() ? T{0} : static_cast<T>(T{0} - value);
      case 4:
        return value < Limits::max() / 2 ? value + T{1} : value;
      case 5:
        return value > T{0} ? value - T{1} : value;
      default: {
        uint8_t bytes[sizeof(T)];
        std::memcpy(bytes, &value, sizeof(T));
        LLVMFuzzerMutate(bytes, sizeof(T), sizeof(T));
        std::memcpy(&value, bytes, sizeof(T));
        return value;
      }
    }
  }

  std::string OtherText(std::string value) {
    const size_t size = value.size();
    value.resize(size + kMoreBytes);
    value.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(value.data()), size, value.size()));
    return value;
  }

  std::minstd_rand random_;
};

}  // namespace

size_t MutateMessage(Message* message, uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  // Protobuf logs a line for each string that does not parse.
  LogLibrariesBy([](LibraryLogLevel, std::string_view) {});
  Mutator mutator(seed);
  // Also tries bytes that are almost a message.
  if (mutator.OneIn(16) || !message->ParseFromArray(data, static_cast<int>(size))) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  do {
    mutator.Mutate(message);
  } while (mutator.OneIn(2));
  const std::string changed = message->SerializePartialAsString();
  if (changed.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}

}  // namespace attnbias
