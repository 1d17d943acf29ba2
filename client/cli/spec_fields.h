// SPDX-License-Identifier: Apache-2.0
// Makes a TensorSpec of the command line's words, by reflection: a new encoding
// needs no line here. Fields of an encoding are set by `name=value`:
//
//   dim=512  columns=sines_cosines  slopes=1,0.5  bidirectional=true
//   table=@weights.safetensors:encoder.bias  table=name:t5-small/encoder
//   table_layout=heads_buckets  layers.0.weight=@weights.safetensors:mlp.0
//   ladder.base=500  axes.0.scale=2  axes.1={}
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attnbias/v1/service.pb.h"
#include "presets/presets.pb.h"

namespace attnbias {

// Forms of a table on the command line.
inline constexpr absl::string_view kTableForms =
    "@FILE.safetensors:TENSOR, @FILE.npy, name:NAME or sha256:DIGEST";

// An encoding under a name that the tool accepts: its own, or a preset's.
struct NamedEncoding {
  std::string name;
  // The encoding's field in TensorSpec.
  const google::protobuf::FieldDescriptor* field;
  // Null for the encoding's own name.
  const presets::Preset* preset = nullptr;
};

// An argument of an encoding, and the first field that has its value.
struct Argument {
  std::string name;
  const google::protobuf::FieldDescriptor* field;
  // True if a preset requires it.
  bool required = false;
};

// Returns the messages of TensorSpec's oneof `encoding`, in field order, then
// the presets.
std::vector<NamedEncoding> Encodings();

// INVALID_ARGUMENT, with all names, if no encoding has this one.
absl::StatusOr<NamedEncoding> EncodingNamed(absl::string_view name);

// Returns the fields that an encoding's name leaves open.
std::vector<Argument> ArgumentsOf(const NamedEncoding& encoding);
std::vector<Argument> ArgumentsOf(const google::protobuf::Descriptor& type);

// Returns whether a field is a message, or several, whose fields are set one by
// one: "ladder.base", "layers.0.weight".
bool IsNested(const google::protobuf::FieldDescriptor& field);

// Returns what precedes the names of a nested field's own: "ladder.",
// "layers.N.".
std::string NestedPrefix(const Argument& argument);

// Returns the names that an assignment may set: arguments, and for a table its
// layout.
std::vector<std::string> SettableNames(const std::vector<Argument>& arguments);

// Returns another field of the same oneof that `message` has; null if none.
const google::protobuf::FieldDescriptor* RivalOf(const google::protobuf::FieldDescriptor& field,
                                                 const google::protobuf::Message& message);

// Sets a field of `message` by its name. INVALID_ARGUMENT begins with the name.
// A range is A:B, or N for 0:N, a list 3,-1,3.
absl::Status SetField(absl::string_view name, absl::string_view value,
                      google::protobuf::Message* message);

// Chooses the encoding called `name` and sets its fields. INVALID_ARGUMENT
// names the encoding or field, the value received and the values accepted.
absl::Status SetEncoding(const std::string& name, const std::vector<std::string>& assignments,
                         v1::TensorSpec* spec);

// Returns the field of TensorSpec's oneof `encoding`; null if `spec` has none.
const google::protobuf::FieldDescriptor* EncodingIn(const v1::TensorSpec& spec);

// Returns an encoding and its fields in the words of SetEncoding; "" if `spec`
// has none.
std::string EncodingText(const v1::TensorSpec& spec);

// Returns the value of `type` with this name, in any case, with or without the
// type's prefix: "bf16", "DATA_TYPE_BF16".
absl::StatusOr<int> ParseEnum(const google::protobuf::EnumDescriptor& type, absl::string_view text);

// Returns the extent that the encoding of `spec` requires: "table", "pair" or
// "grid".
std::string ExtentOf(const v1::TensorSpec& spec);

// Returns "half" for the value ROTARY_LAYOUT_HALF.
std::string ShortName(const google::protobuf::EnumDescriptor& type, absl::string_view value);

// Returns the short names of an enum's values, without the unspecified one.
std::vector<std::string> ShortNames(const google::protobuf::EnumDescriptor& type);

// A tensor in the words of the command line.
struct TensorOptions {
  std::string encoding;
  std::vector<std::string> fields;
  // Values of flags, by the field of the encoding's extent, of the output or of
  // its mask. Empty if the flag is not given.
  std::map<std::string, std::vector<std::string>> flags;
};

// Returns "--query-length" for the field query_length.
std::string FlagOf(absl::string_view field);

// Makes the request. INVALID_ARGUMENT names the flag or field, the value and
// what was wanted. Rules that only the server knows are left to it.
absl::StatusOr<v1::TensorSpec> BuildSpec(const TensorOptions& options);

}  // namespace attnbias
