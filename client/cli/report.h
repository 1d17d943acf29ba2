// SPDX-License-Identifier: Apache-2.0
// What the commands print.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attnbias/v1/service.pb.h"
#include "client/cli/spec_fields.h"

namespace attnbias {

// The encodings of these names, or all if there are none. INVALID_ARGUMENT for
// a name that no encoding has.
absl::StatusOr<std::vector<NamedEncoding>> EncodingsNamed(
    const std::vector<std::string>& names);

// Encodings with their fields, rules and enum values, out of the contract's
// descriptors.
std::string EncodingList(const std::vector<NamedEncoding>& encodings);
std::string EncodingListAsJson(const std::vector<NamedEncoding>& encodings);

// Whether the server serves: "SERVING", "NOT_SERVING" or "UNKNOWN".
std::string HealthAsJson(absl::string_view status);

// Text of the server in the following is made printable.

// A mounted table: name, type, shape, source, digest, and where its use is
// known, what `get` would be told.
std::string TableReport(v1::TableInfo table);

// Parts, sizes, fingerprint.
std::string HeaderReport(v1::TensorHeader header);

// The same, and what else there is to know before fetching.
std::string DescribeReport(v1::TensorHeader header);

// What the server is, and its limits.
std::string InfoReport(v1::GetServerInfoResponse info);

// A message as JSON, with all fields under the contract's names.
std::string AsJson(const google::protobuf::Message& message);

// Code and message, then one line for each blamed field that the message does
// not name.
std::string ErrorReport(const absl::Status& status);

}  // namespace attnbias
