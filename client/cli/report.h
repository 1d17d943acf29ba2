// SPDX-License-Identifier: Apache-2.0
// What the commands print.
#ifndef ATTNBIAS_CLIENT_CLI_REPORT_H_
#define ATTNBIAS_CLIENT_CLI_REPORT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnbias/v1/service.pb.h"

namespace attnbias {

// The encodings of these names, of no name all of them, with their fields,
// types, defaults and enum values, out of the contract's descriptors.
// INVALID_ARGUMENT for a name that none has.
absl::StatusOr<std::string> EncodingList(const std::vector<std::string>& names);

// A mounted table: name, type, shape, source, digest, and where its use is
// known, what `get` would be told.
std::string TableReport(const v1::TableInfo& table);

// Parts, sizes, fingerprint.
std::string HeaderReport(const v1::TensorHeader& header);

// The same, and what else there is to know before fetching.
std::string DescribeReport(const v1::TensorHeader& header);

// What the server is, and its limits.
std::string InfoReport(const v1::GetServerInfoResponse& info);

// A message as JSON, its field names as in the contract.
std::string AsJson(const google::protobuf::Message& message);

// Code and message in the words of the command line, then one line for each
// blamed field that the message does not name.
std::string ErrorReport(const absl::Status& status);

}  // namespace attnbias

#endif  // ATTNBIAS_CLIENT_CLI_REPORT_H_
