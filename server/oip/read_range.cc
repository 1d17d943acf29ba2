// SPDX-License-Identifier: Apache-2.0
#include "server/oip/read_range.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "server/limits.h"

namespace attnbias {
namespace {

struct Reading {
  Payload& payload;
  Range left;
  Executor& executor;
  CallerPtr caller;
  absl::AnyInvocable<void(absl::StatusOr<std::vector<Chunk>>)> done;
  std::vector<Chunk> chunks;
};

void ReadNext(std::unique_ptr<Reading> reading) {
  Reading& now = *reading;
  const int64_t size = std::min(now.left.size(), kMaxChunkBytes);
  now.payload.Read(now.left.begin, size,
                   [reading = std::move(reading),
                    size](absl::StatusOr<Chunk> chunk) mutable {
                     if (!chunk.ok()) return reading->done(chunk.status());
                     reading->chunks.push_back(*std::move(chunk));
                     reading->left.begin += size;
                     if (reading->left.size() == 0) {
                       return reading->done(std::move(reading->chunks));
                     }
                     Executor& executor = reading->executor;
                     CallerPtr caller = reading->caller;
                     executor.Continue(
                         std::move(caller),
                         [reading = std::move(reading)]() mutable {
                           ReadNext(std::move(reading));
                         });
                   });
}

}  // namespace

void ReadRange(
    Payload* payload, Range bytes, Executor* executor, const CallerPtr& caller,
    absl::AnyInvocable<void(absl::StatusOr<std::vector<Chunk>>)> done) {
  ReadNext(std::make_unique<Reading>(
      Reading{*payload, bytes, *executor, caller, std::move(done), {}}));
}

}  // namespace attnbias
