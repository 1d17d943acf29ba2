// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/header_check.h"

#include <google/protobuf/util/message_differencer.h>

#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attnbias/internal/printable.h"
#include "attnbias/tensor.h"
#include "client/cpp/src/expected.h"

namespace attnbias {
namespace {

// Of an array: numpy's limit, far from what any encoding has.
constexpr int kMostAxes = 64;

bool ShapeFits(const v1::TensorPart& part) {
  int64_t bytes = ElementSize(part.data_type());
  for (const int64_t extent : part.shape()) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) {
      return false;
    }
  }
  return bytes == part.size_bytes();
}

}  // namespace

absl::Status CheckHeader(const v1::TensorHeader& header,
                         const v1::TensorSpec& spec, int64_t max_tensor_bytes) {
  if (header.parts().empty()) {
    return absl::DataLossError("header: it has no parts");
  }
  int64_t end = 0;
  for (const v1::TensorPart& part : header.parts()) {
    if (ElementSize(part.data_type()) == 0) {
      return absl::UnimplementedError(absl::StrCat(
          "header: part ", internal::Excerpt(part.name()), " has data_type ",
          part.data_type(), ", which this client does not know"));
    }
    if (part.shape_size() > kMostAxes) {
      return absl::DataLossError(
          absl::StrCat("header: part ", internal::Excerpt(part.name()), " has ",
                       part.shape_size(), " axes, want at most ", kMostAxes));
    }
    if (part.offset() != end || !ShapeFits(part) ||
        __builtin_add_overflow(end, part.size_bytes(), &end)) {
      return absl::DataLossError(absl::StrCat(
          "header: part ", internal::Excerpt(part.name()), " at byte ",
          part.offset(), " has shape [", absl::StrJoin(part.shape(), ", "),
          "] of ", v1::DataType_Name(part.data_type()), " in ",
          part.size_bytes(), " bytes, which does not add up"));
    }
  }
  if (end != header.total_bytes()) {
    return absl::DataLossError(absl::StrCat("header.total_bytes: got ",
                                            header.total_bytes(), ", want ",
                                            end, ", the sum of its parts"));
  }
  if (absl::Status status = CheckAnswer(header, spec); !status.ok()) {
    return status;
  }
  if (end > max_tensor_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("max_tensor_bytes: the tensor has ", end,
                     " bytes, this client takes at most ", max_tensor_bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckSame(const v1::TensorHeader& got,
                       const v1::TensorHeader& want) {
  if (got.fingerprint() != want.fingerprint()) {
    return absl::DataLossError(absl::StrCat(
        "stream: resumed with fingerprint ",
        internal::Excerpt(got.fingerprint()), ", want ", want.fingerprint()));
  }
  if (!absl::c_equal(got.parts(), want.parts(),
                     &google::protobuf::util::MessageDifferencer::Equals)) {
    return absl::DataLossError(absl::StrCat("stream: resumed with parts ",
                                            PartsAsText(got), ", want ",
                                            PartsAsText(want)));
  }
  return absl::OkStatus();
}

}  // namespace attnbias
