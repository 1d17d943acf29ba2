// SPDX-License-Identifier: Apache-2.0
#include "server/stream_request.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "server/limits.h"

namespace attnbias {
namespace {

absl::Status CheckFields(const v1::StreamTensorRequest& request) {
  for (const auto& [field, value] :
       {std::pair("read_offset", request.read_offset()),
        std::pair("read_limit", request.read_limit())}) {
    if (value >= 0) continue;
    return Invalid(field, ": got ", value, ", want an integer of at least 0");
  }
  if (request.read_offset() != 0 && request.expected_fingerprint().empty()) {
    return Invalid(
        "expected_fingerprint: not set, want the header's fingerprint where "
        "read_offset is not 0");
  }
  const int64_t chunk = request.max_chunk_bytes();
  if (chunk != 0 && (chunk < kMinChunkBytes || chunk > kMaxChunkBytes)) {
    return Invalid("max_chunk_bytes: got ", chunk,
                   ", want 0 or an integer in [", kMinChunkBytes, ", ",
                   kMaxChunkBytes, "]");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StreamWindow> ResolveStream(
    const v1::StreamTensorRequest& request, const Plan& plan) {
  ATTNBIAS_RETURN_IF_ERROR(CheckFields(request));
  const std::string& expected = request.expected_fingerprint();
  if (!expected.empty() && expected != plan.fingerprint()) {
    return absl::FailedPreconditionError(
        absl::StrCat("expected_fingerprint: this server would send ",
                     plan.fingerprint(), "; start again from offset 0"));
  }
  const int64_t total = plan.total_bytes();
  const int64_t begin = request.read_offset();
  if (begin > total) {
    return absl::OutOfRangeError(absl::StrCat("read_offset: got ", begin,
                                              ", want at most ", total,
                                              ", the size of the payload"));
  }
  StreamWindow window;
  window.bytes = {begin, total};
  if (request.read_limit() != 0) {
    window.bytes.end = begin + std::min(request.read_limit(), total - begin);
  }
  window.chunk_bytes = request.max_chunk_bytes() == 0
                           ? kDefaultChunkBytes
                           : request.max_chunk_bytes();
  return window;
}

}  // namespace attnbias
