// SPDX-License-Identifier: Apache-2.0
// Refuses what this server does not know, instead of ignoring it.
#ifndef ATTNBIAS_SERVER_CODEC_KNOWN_H_
#define ATTNBIAS_SERVER_CODEC_KNOWN_H_

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace attnbias {

// UNIMPLEMENTED when `message` has at any depth a field or an enum value that
// its descriptor does not. The error names path, number and this server's
// version. A newer client would otherwise get only a part of what it asks for.
absl::Status CheckKnown(const google::protobuf::Message& message);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_CODEC_KNOWN_H_
