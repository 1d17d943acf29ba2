// SPDX-License-Identifier: Apache-2.0
// Texts that the commands print.
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

// Returns the encodings of these names, or all if `names` is empty.
// INVALID_ARGUMENT if no encoding has one of the names.
absl::StatusOr<std::vector<NamedEncoding>> EncodingsNamed(const std::vector<std::string>& names);

// Lists encodings with their fields, rules and enum values, from the contract's
// descriptors.
std::string EncodingList(const std::vector<NamedEncoding>& encodings);
std::string EncodingListAsJson(const std::vector<NamedEncoding>& encodings);

// Reports the health of a server: "SERVING", "NOT_SERVING" or "UNKNOWN".
std::string HealthAsJson(absl::string_view status);

// The next four make the server's text printable.

// Reports a mounted table: name, type, shape, source, digest, and the arguments
// of `get` if the server knows them.
std::string TableReport(v1::TableInfo table);

// Reports parts, sizes and fingerprint.
std::string HeaderReport(v1::TensorHeader header);

// Reports in addition the total size, masked queries and derived values.
std::string DescribeReport(v1::TensorHeader header);

// Reports version, kernels, types, encodings and limits of a server.
std::string InfoReport(v1::GetServerInfoResponse info);

// Returns a message as JSON, with all fields under the contract's names.
std::string AsJson(const google::protobuf::Message& message);

// Reports code and message, then a line for each field violation that the
// message does not name.
std::string ErrorReport(const absl::Status& status);

}  // namespace attnbias
