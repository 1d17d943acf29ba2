// SPDX-License-Identifier: Apache-2.0
// From a spec to its encoding. Each encoding's file registers what describes
// it, so that nobody else has to know it.
#ifndef ATTNBIAS_CORE_ENCODING_MAKE_ENCODING_H_
#define ATTNBIAS_CORE_ENCODING_MAKE_ENCODING_H_

#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "core/encoding/encoding.h"
#include "core/encoding/spec/tensor_spec.h"

namespace attnbias {

// Validates hyperparameters, output.values and output.scale.
//
// INVALID_ARGUMENT  a field's value; the message begins with the field's path
//                   inside TensorSpec and ": "
absl::StatusOr<EncodingPtr> MakeEncoding(EncodingSpec spec,
                                         const Output& output);

// The spec of that encoding with nothing set; nothing where there is no such
// encoding.
std::optional<EncodingSpec> DefaultSpec(std::string_view name);

// The names of all encodings, in alphabetical order.
std::vector<std::string_view> EncodingNames();

namespace encoding_internal {

struct Factory {
  EncodingSpec (*default_spec)();
  std::function<absl::StatusOr<Encoding>(const EncodingSpec& spec)> describe;
};
void Register(std::string_view name, Factory factory);

}  // namespace encoding_internal

// Makes an encoding known, for the life of the program:
//
//   const EncodingRegistration kAlibi(&DescribeAlibi);
//
// The function is given a spec whose fields have passed CheckFields; those of
// biases have not where values BUCKETS are asked for.
class EncodingRegistration {
 public:
  template <typename Spec>
  explicit EncodingRegistration(
      absl::StatusOr<Encoding> (*describe)(const Spec& spec)) {
    encoding_internal::Register(Spec::kName,
                                {[] { return EncodingSpec(Spec()); },
                                 [describe](const EncodingSpec& spec) {
                                   return describe(*spec.As<Spec>());
                                 }});
  }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_MAKE_ENCODING_H_
