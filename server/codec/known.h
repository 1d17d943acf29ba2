// SPDX-License-Identifier: Apache-2.0
// Refuses what an older server would otherwise ignore.
#ifndef ATTNBIAS_SERVER_CODEC_KNOWN_H_
#define ATTNBIAS_SERVER_CODEC_KNOWN_H_

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace attnbias {

// UNIMPLEMENTED, naming path, number and this server's version, when `message`
// has at any depth a field or an enum value that its descriptor does not: a
// newer client asks for something of which we would otherwise serve a part.
absl::Status CheckKnown(const google::protobuf::Message& message);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_CODEC_KNOWN_H_
