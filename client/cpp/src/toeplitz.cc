// SPDX-License-Identifier: Apache-2.0
#include "attnbias/toeplitz.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attnbias/v1/options.pb.h"

namespace attnbias::internal {
namespace {

int64_t LengthOf(bool listed, const v1::PositionList& positions,
                 const v1::Range& window) {
  return listed ? positions.positions_size() : window.end() - window.begin();
}

// Asks the encoding, since [heads, diagonals] and [diagonals, columns] may be
// equal: a field of one with vectors determines their columns.
bool HasVectors(const v1::TensorSpec& spec) {
  if (spec.output().values() == v1::VALUES_BUCKETS) return false;
  const auto& reflection = *spec.GetReflection();
  const auto* encoding = reflection.GetOneofFieldDescriptor(
      spec, spec.GetDescriptor()->FindOneofByName("encoding"));
  if (encoding == nullptr) return false;
  const auto& message = reflection.GetMessage(spec, encoding);
  const auto& type = *encoding->message_type();
  for (int i = 0; i < type.field_count(); ++i) {
    const auto& field = *type.field(i);
    if (field.options().GetExtension(v1::rule).columns() &&
        (field.message_type() == nullptr ||
         message.GetReflection()->HasField(message, &field))) {
      return true;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<std::array<int64_t, 4>> ToeplitzExtents(
    const v1::TensorHeader& header) {
  if (header.parts_size() != 1 || header.parts(0).form() != v1::FORM_TOEPLITZ) {
    const auto name = [](std::string* text, const v1::TensorPart& part) {
      absl::StrAppend(text, part.name());
    };
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor: got ", absl::StrJoin(header.parts(), " and ", name),
        ", want diagonals alone: form TOEPLITZ"));
  }
  const v1::PairExtent& pair = header.resolved_spec().pair();
  const int64_t queries = LengthOf(pair.has_query_positions(),
                                   pair.query_positions(), pair.queries());
  const int64_t keys =
      LengthOf(pair.has_key_positions(), pair.key_positions(), pair.keys());
  std::vector<int64_t> axes(header.parts(0).shape().begin(),
                            header.parts(0).shape().end());
  int64_t columns = 1;
  if (HasVectors(header.resolved_spec()) && !axes.empty()) {
    columns = axes.back();
    axes.pop_back();
  }
  const int64_t heads = axes.size() == 2 ? axes.front() : 1;
  if (axes.empty() || axes.size() > 2 || queries < 1 || keys < 1 ||
      axes.back() != queries + keys - 1) {
    return absl::DataLossError(
        absl::StrCat("header: got diagonals of shape [",
                     absl::StrJoin(header.parts(0).shape(), ", "), "] for ",
                     queries, " queries and ", keys, " keys"));
  }
  return std::array<int64_t, 4>{heads, queries, keys, columns};
}

absl::Status CheckElements(v1::DataType type, size_t size, bool real) {
  const bool is_real = type != v1::DATA_TYPE_I32;
  if (ElementSize(type) == static_cast<int64_t>(size) && is_real == real) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor: got elements of ", v1::DataType_Name(type), ", want ",
      real ? "reals" : "integers", " of ", size, " bytes"));
}

absl::Status CheckWindow(Indices part, int64_t extent, const char* axis) {
  if (part.begin >= 0 && part.begin < part.end && part.end <= extent) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(axis, ": got [", part.begin, ", ", part.end,
                   "), want a part of [0, ", extent, ") that is not empty"));
}

}  // namespace attnbias::internal
