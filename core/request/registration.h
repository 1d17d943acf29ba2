// SPDX-License-Identifier: Apache-2.0
// Maps the fields of a oneof to the functions that describe their messages. Each function is
// registered in its own file, so no central list is needed.
#pragma once

#include <functional>
#include <map>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/request/rules.h"
#include "google/protobuf/message.h"

namespace attnbias {

// Registers a function for the life of the program:
//
//   const EncodingRegistration kT5(v1::TensorSpec::kT5FieldNumber,
//                                  &DescribeT5);
//
// The function receives a message that Complete has accepted, and its tables. The function stores
// neither.
template <typename Description, typename... Context>
class Registration {
 public:
  template <typename Message>
  Registration(int field_number,
               absl::StatusOr<Description> (*describe)(const Message& message, const Tables& tables,
                                                       const Context&... context)) {
    All().emplace(field_number, [describe](const google::protobuf::Message& message,
                                           const Tables& tables, const Context&... context) {
      return describe(static_cast<const Message&>(message), tables, context...);
    });
  }

  static absl::StatusOr<Description> Describe(int field_number,
                                              const google::protobuf::Message& message,
                                              const Tables& tables, const Context&... context) {
    const auto found = All().find(field_number);
    if (found != All().end()) return found->second(message, tables, context...);
    return absl::UnimplementedError(
        absl::StrCat(message.GetDescriptor()->name(), ": not part of this build"));
  }

 private:
  using Function = std::function<absl::StatusOr<Description>(
      const google::protobuf::Message& message, const Tables& tables, const Context&... context)>;

  static std::map<int, Function>& All() {
    static auto* const all = new std::map<int, Function>;
    return *all;
  }
};

}  // namespace attnbias
