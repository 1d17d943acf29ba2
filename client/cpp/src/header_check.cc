// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/header_check.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attnbias/tensor.h"

namespace attnbias {
namespace {

bool ShapeFits(const v1::TensorPart& part) {
  int64_t bytes = ElementSize(part.data_type());
  if (bytes == 0) return false;
  for (const int64_t extent : part.shape()) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) {
      return false;
    }
  }
  return bytes == part.size_bytes();
}

}  // namespace

absl::Status CheckHeader(const v1::TensorHeader& header,
                         int64_t max_tensor_bytes) {
  int64_t end = 0;
  for (const v1::TensorPart& part : header.parts()) {
    if (part.offset() != end || !ShapeFits(part) ||
        __builtin_add_overflow(end, part.size_bytes(), &end)) {
      return absl::DataLossError(
          absl::StrCat("header: part ", part.name(), " at byte ", part.offset(),
                       " has shape [", absl::StrJoin(part.shape(), ", "),
                       "] of ", v1::DataType_Name(part.data_type()), " in ",
                       part.size_bytes(), " bytes, which does not add up"));
    }
  }
  if (end != header.total_bytes()) {
    return absl::DataLossError(absl::StrCat("header.total_bytes: got ",
                                            header.total_bytes(), ", want ",
                                            end, ", the sum of its parts"));
  }
  if (end > max_tensor_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("max_tensor_bytes: the tensor has ", end,
                     " bytes, this client takes at most ", max_tensor_bytes));
  }
  return absl::OkStatus();
}

}  // namespace attnbias
