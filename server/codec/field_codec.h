// SPDX-License-Identifier: Apache-2.0
// A spec's list of fields to and from the message that has them, by number.
#ifndef ATTNBIAS_SERVER_CODEC_FIELD_CODEC_H_
#define ATTNBIAS_SERVER_CODEC_FIELD_CODEC_H_

#include <string>

#include "absl/status/status.h"
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

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_CODEC_FIELD_CODEC_H_
