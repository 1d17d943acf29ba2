// SPDX-License-Identifier: Apache-2.0
// Builds a TensorSpec from the words on the command line by reflection, so that a new encoding
// needs no code here. An encoding's fields are set by `name=value`:
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

// Forms in which the command line accepts a table.
inline constexpr absl::string_view kTableForms =
    "@FILE.safetensors:TENSOR, @FILE.npy, name:NAME or sha256:DIGEST";

// An encoding, under a name that the tool accepts: its own or a preset's.
struct NamedEncoding {
  std::string name;
  // The encoding's field in TensorSpec.
  const google::protobuf::FieldDescriptor* field;
  // Null if the name is the encoding's own.
  const presets::Preset* preset = nullptr;
};

// An argument of an encoding: a field that is not nested, identified by its path ("ladder.base",
// "layers.N.weight"), or a table's layout.
struct Argument {
  std::string name;
  // The first field that the argument sets.
  const google::protobuf::FieldDescriptor* field;
  // "required", "required with yarn", "optional", or the default.
  std::string need;
};

// Returns the messages of TensorSpec's oneof `encoding`, in field order, then the presets.
std::vector<NamedEncoding> Encodings();

// Returns INVALID_ARGUMENT, listing all names, if no encoding has this name.
absl::StatusOr<NamedEncoding> EncodingNamed(absl::string_view name);

// Returns the arguments of the preset or, if there is none, of the encoding itself.
std::vector<Argument> ArgumentsOf(const NamedEncoding& encoding);

// Returns the encoding and its fields as command-line arguments; "" if `spec` has no encoding.
std::string EncodingText(const v1::TensorSpec& spec);

// Returns the head window of a resolved request; null if all heads share their values.
const v1::Range* HeadsOf(const v1::TensorSpec& spec);

// Returns "half" for the value ROTARY_LAYOUT_HALF.
std::string ShortName(const google::protobuf::EnumDescriptor& type, absl::string_view value);

// Returns the short names of an enum's values, except the unspecified one.
std::vector<std::string> ShortNames(const google::protobuf::EnumDescriptor& type);

// A tensor, as described by the command line.
struct TensorOptions {
  std::string encoding;
  std::vector<std::string> fields;
  // Flag values, keyed by the field that the flag sets in the encoding's extent, the output or its
  // mask. Empty if the flag is not given.
  std::map<std::string, std::vector<std::string>> flags;
};

// Returns "--query-length" for the field query_length.
std::string FlagOf(absl::string_view field);

// Makes the request. INVALID_ARGUMENT names the flag or field, the value received and the values
// accepted. The server checks the rules that only it knows.
absl::StatusOr<v1::TensorSpec> BuildSpec(const TensorOptions& options);

}  // namespace attnbias
