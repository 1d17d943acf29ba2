// SPDX-License-Identifier: Apache-2.0
#include "client/cli/byte_size.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attnbias/tensor.h"

namespace attnbias {

absl::StatusOr<int64_t> ByteSize(
    v1::DataType type, const google::protobuf::RepeatedField<int64_t>& shape) {
  int64_t bytes = ElementSize(type);
  for (const int64_t length : shape) {
    if (length < 0 || __builtin_mul_overflow(bytes, length, &bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape: got [", absl::StrJoin(shape, ", "),
                       "], want lengths from 0 whose bytes fit in 63 bits"));
    }
  }
  return bytes;
}

absl::Status CheckAtMost(int64_t bytes, int64_t max_bytes) {
  if (bytes <= max_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "got a tensor of ", bytes, " bytes, want at most ", max_bytes,
      " in a request; a larger one is mounted by the server (--tables)"));
}

}  // namespace attnbias
