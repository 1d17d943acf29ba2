// SPDX-License-Identifier: Apache-2.0
// Brings one payload into memory: in one message where it is known to fit, else
// by one stream or by several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnbias/client.h"
#include "attnbias/v1/service.pb.h"
#include "client/cpp/src/attempts.h"
#include "client/cpp/src/call_group.h"
#include "client/cpp/src/channels.h"
#include "client/cpp/src/known_sizes.h"
#include "client/cpp/src/payload.h"
#include "client/cpp/src/range.h"

namespace attnbias {

// How many streams are worth it for the rest of a payload, when one brings so
// much.
int64_t WorthwhileStreams(int64_t rest, double bytes_per_second);

// For one thread and one call of Run.
class Download {
 public:
  // All outlive this.
  Download(const v1::TensorSpec& spec, std::optional<int> streams,
           const Attempts& attempts, Channels* channels, KnownSizes* sizes,
           Payload* payload);

  // The payload is whole then. Else gives the error of the last attempt.
  absl::Status Run();

 private:
  // Gets it in one message; false where a stream has to.
  absl::StatusOr<bool> Get();
  absl::Status Stream();
  absl::Status Rest(int64_t streams);
  // Over the channel of an index.
  absl::Status Fetch(Range* range, size_t index, CallGroup* group);

  const v1::TensorSpec& spec_;
  const std::optional<int> streams_;
  const Attempts& attempts_;
  Channels& channels_;
  KnownSizes& sizes_;
  Payload& payload_;
  // Whether what failed went on with a payload that was begun before.
  bool has_gone_on_ = false;
};

}  // namespace attnbias
