// SPDX-License-Identifier: Apache-2.0
// Text that the commands print.
#pragma once

#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "attnbias/v1/service.pb.h"
#include "client/cli/spec_fields.h"

namespace attnbias {

// Lists encodings with their fields, rules and enum values, taken from the contract's descriptors.
std::string EncodingList(const std::vector<NamedEncoding>& encodings);
std::string EncodingListAsJson(const std::vector<NamedEncoding>& encodings);

// The next four functions make the server's text printable.

// Reports a mounted table: name, type, shape, source, digest and, if the server knows them, the
// arguments for `get`.
std::string TableReport(const v1::TableInfo& table);

// Reports the parts, sizes and fingerprint.
std::string HeaderReport(const v1::TensorHeader& header);

// Also reports the total size, masked queries and derived values.
std::string DescribeReport(const v1::TensorHeader& header);

// Reports a server's version, kernels, types, encodings and limits.
std::string InfoReport(const v1::GetServerInfoResponse& info);

// Returns a message as JSON, with the contract's field names.
std::string JsonOf(const google::protobuf::Message& message,
                   google::protobuf::util::JsonPrintOptions options = {});

// Returns a message as JSON for scripts, with all fields.
std::string AsJson(const google::protobuf::Message& message);

// Returns the little-endian element at `bytes`. The result is exact, since a double can represent
// every value of every element type.
double ReadElement(v1::DataType type, const std::byte* bytes);

// Returns up to six rows and columns of the last two axes, at index 0 of the others, with "..." for
// the rest. Labels each head with its index in `heads`, which the first axis covers; `heads` is
// null if all heads share their values.
std::string PreviewNumbers(const v1::TensorPart& part, absl::Span<const std::byte> bytes,
                           const v1::Range* heads);

// Reports the code and the message, followed by a line for each field violation that the message
// does not name.
std::string ErrorReport(const absl::Status& status);

}  // namespace attnbias
