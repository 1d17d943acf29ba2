// SPDX-License-Identifier: Apache-2.0
// Specs to and from the messages that have their fields: a spec lists its
// fields by number, and has the name that its message has in a oneof.
#ifndef ATTNBIAS_SERVER_CODEC_FIELD_CODEC_H_
#define ATTNBIAS_SERVER_CODEC_FIELD_CODEC_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/encoding/spec/any_spec.h"
#include "core/encoding/spec/field.h"
#include "core/mount/registry.h"
#include "google/protobuf/message.h"

namespace attnbias {

// Sets the members whose fields `message`, which has passed CheckKnown, has.
// `path` is where it stands, for messages; `tables` are those it may name.
//
// With the errors of DecodeTable.
absl::Status DecodeFields(const google::protobuf::Message& message,
                          const std::string& path, const TableSet& tables,
                          const FieldList& fields);

// Every default is written out; idle fields are left out, and tables become
// digests.
void EncodeFields(const FieldList& fields, google::protobuf::Message* message);

// The spec that `message` has in `oneof`. `default_spec` knows those that may
// stand there, as SpecRegistration does.
//
// INVALID_ARGUMENT  there is none
absl::StatusOr<AnySpec> DecodeOneof(
    const google::protobuf::Message& message, const std::string& oneof,
    const TableSet& tables,
    std::optional<AnySpec> (*default_spec)(std::string_view name));

// Sets the field of `message` that has the spec's name, and returns it.
google::protobuf::Message* EncodeOneof(AnySpec spec,
                                       google::protobuf::Message* message);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_CODEC_FIELD_CODEC_H_
