// SPDX-License-Identifier: Apache-2.0
// What the commands print.
#ifndef ATTNBIAS_CLIENT_CLI_REPORT_H_
#define ATTNBIAS_CLIENT_CLI_REPORT_H_

#include <string>

#include "absl/status/status.h"
#include "attnbias/v1/service.pb.h"

namespace attnbias {

// Every encoding with its fields, their types, defaults and enum values, out of
// the contract's descriptors.
std::string EncodingList();

// A mounted table: name, type, shape, source, digest, and where its use is
// known, what `get` would be told.
std::string TableReport(const v1::TableInfo& table);

// Parts, sizes, fingerprints.
std::string HeaderReport(const v1::TensorHeader& header);

// A message as JSON, its field names as in the contract.
std::string AsJson(const google::protobuf::Message& message);

// Code and message, then one line for each blamed field that the message does
// not name.
std::string ErrorReport(const absl::Status& status);

}  // namespace attnbias

#endif  // ATTNBIAS_CLIENT_CLI_REPORT_H_
