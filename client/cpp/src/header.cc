// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/header.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "attnbias/internal/printable.h"
#include "attnbias/tensor.h"

namespace attnbias {
namespace {

constexpr size_t kFingerprintDigits = 64;
constexpr size_t kMostNameBytes = 64;
// NumPy's limit, which no encoding approaches.
constexpr int kMostAxes = 64;
// Exceeds all positions; sums of a few such values do not overflow.
constexpr int64_t kMostPosition = int64_t{1} << 42;

absl::Status CheckFingerprint(absl::string_view field, const std::string& value) {
  const auto is_digit = [](char c) { return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f'); };
  if (value.size() == kFingerprintDigits && absl::c_all_of(value, is_digit)) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat("header.", field, ": got \"", internal::Excerpt(value),
                                          "\", want 64 lowercase hex digits"));
}

bool IsPartName(absl::string_view name) {
  return !name.empty() && name.size() <= kMostNameBytes && absl::c_all_of(name, [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '.' || c == '_';
  });
}

bool ShapeFits(const v1::TensorPart& part) {
  int64_t bytes = ElementSize(part.data_type());
  for (const int64_t length : part.shape()) {
    if (length < 1 || __builtin_mul_overflow(bytes, length, &bytes)) return false;
  }
  return !part.shape().empty() && bytes == part.size_bytes();
}

// Checks a part that begins at `offset`.
absl::Status CheckPart(const v1::TensorPart& part, int64_t offset) {
  if (!IsPartName(part.name())) {
    return absl::DataLossError(absl::StrCat("header.parts: got the name \"",
                                            internal::Excerpt(part.name()),
                                            "\", want 1 to 64 characters from a-z, 0-9, . and _"));
  }
  const std::string subject = absl::StrCat("header: part ", part.name());
  const auto unknown = [&](absl::string_view field, int value) {
    return absl::UnimplementedError(absl::StrCat(subject, " has ", field, " ", value,
                                                 ", which this client does not recognize"));
  };
  if (ElementSize(part.data_type()) == 0) return unknown("data_type", part.data_type());
  if (!v1::Form_IsValid(part.form()) || part.form() == v1::FORM_UNSPECIFIED) {
    return unknown("form", part.form());
  }
  if (part.shape_size() > kMostAxes) {
    return absl::DataLossError(
        absl::StrCat(subject, " has ", part.shape_size(), " axes, want at most ", kMostAxes));
  }
  if (part.offset() != offset || !ShapeFits(part)) {
    return absl::DataLossError(absl::StrCat(subject, " at byte ", part.offset(), " has shape [",
                                            absl::StrJoin(part.shape(), ", "), "] of ",
                                            v1::DataType_Name(part.data_type()), " in ",
                                            part.size_bytes(), " bytes, which does not add up"));
  }
  const int64_t first = part.first_relative_position();
  if (first != 0 && part.form() != v1::FORM_TOEPLITZ) {
    return absl::DataLossError(
        absl::StrCat(subject, " has first_relative_position ", first, ", want 0"));
  }
  return absl::OkStatus();
}

bool IsPosition(int64_t position) {
  return position >= -kMostPosition && position <= kMostPosition;
}

// Returns true if arithmetic with the header's positions cannot overflow.
bool HasPositions(const v1::TensorHeader& header) {
  const v1::TensorSpec& spec = header.resolved_spec();
  for (const v1::Range* range :
       {&spec.pair().queries(), &spec.pair().keys(), &spec.pair().heads(), &spec.grid().queries(),
        &spec.grid().keys(), &spec.grid().heads(), &spec.table().positions()}) {
    if (!IsPosition(range->begin()) || !IsPosition(range->end()) || range->begin() > range->end()) {
      return false;
    }
  }
  return IsPosition(spec.pair().query_offset()) &&
         absl::c_all_of(spec.table().grid_offset(), &IsPosition) &&
         IsPosition(header.parts(0).first_relative_position());
}

// Rejects masked rows that are not ascending ranges of queries in the window.
absl::Status CheckRows(const v1::TensorHeader& header) {
  const int64_t queries = QueriesAndKeys(header.resolved_spec().pair()).first;
  int64_t end = 0;
  for (const v1::Range& rows : header.fully_masked_rows()) {
    if (rows.begin() < end || rows.begin() >= rows.end() || rows.end() > queries) {
      return absl::DataLossError(absl::StrCat("header.fully_masked_rows: got [", rows.begin(), ", ",
                                              rows.end(), "), want ascending ranges in [0, ",
                                              queries, ")"));
    }
    end = rows.end();
  }
  return absl::OkStatus();
}

// Rejects column_axes unless they assign to each axis as many columns as its parts have.
absl::Status CheckColumns(const v1::TensorHeader& header) {
  if (header.column_axes().empty()) return absl::OkStatus();
  const int axes = header.resolved_spec().table().grid_size();
  std::vector<int64_t> columns(static_cast<size_t>(axes));
  bool fits = axes > 0 && header.parts_size() % axes == 0;
  for (const int32_t axis : header.column_axes()) {
    fits = fits && axis >= 0 && axis < axes;
    if (fits) ++columns[static_cast<size_t>(axis)];
  }
  for (int i = 0; fits && i < header.parts_size(); ++i) {
    const v1::TensorPart& part = header.parts(i);
    fits = part.shape_size() == 2 && part.shape(1) == columns[static_cast<size_t>(i % axes)];
  }
  if (fits) return absl::OkStatus();
  return absl::DataLossError("header.column_axes: got columns that differ from those of the parts");
}

// Returns a part of the header as text, for an error message.
std::string PartAsText(const v1::TensorHeader& header, int index) {
  if (index == header.parts_size()) return "no more";
  return absl::StrCat("{", internal::Excerpt(header.parts(index).ShortDebugString()), "}");
}

}  // namespace

std::pair<int64_t, int64_t> QueriesAndKeys(const v1::PairExtent& pair) {
  const auto length = [](const v1::PositionList& list, const v1::Range& window) -> int64_t {
    if (!list.positions().empty()) return list.positions_size();
    int64_t size = 0;
    return __builtin_sub_overflow(window.end(), window.begin(), &size) ? 0 : size;
  };
  return {length(pair.query_positions(), pair.queries()),
          length(pair.key_positions(), pair.keys())};
}

absl::Status CheckHeader(const v1::TensorHeader& header, int64_t max_tensor_bytes) {
  absl::Status status = CheckFingerprint("fingerprint", header.fingerprint());
  status.Update(CheckFingerprint("encoding_fingerprint", header.encoding_fingerprint()));
  if (!status.ok()) return status;
  if (header.parts().empty()) {
    return absl::DataLossError("header: has no parts");
  }
  int64_t end = 0;
  std::vector<absl::string_view> names;
  for (const v1::TensorPart& part : header.parts()) {
    status = CheckPart(part, end);
    if (!status.ok()) return status;
    if (__builtin_add_overflow(end, part.size_bytes(), &end)) {
      return absl::DataLossError("header: the sum of its parts exceeds 64 bits");
    }
    names.push_back(part.name());
  }
  if (std::set<absl::string_view>(names.begin(), names.end()).size() < names.size()) {
    return absl::DataLossError(absl::StrCat("header.parts: got [",
                                            internal::Excerpt(absl::StrJoin(names, ", ")),
                                            "], want distinct names"));
  }
  if (end != header.total_bytes()) {
    return absl::DataLossError(absl::StrCat("header.total_bytes: got ", header.total_bytes(),
                                            ", want ", end, ", the sum of its parts"));
  }
  if (!HasPositions(header)) {
    return absl::DataLossError(
        "header.resolved_spec: got positions beyond 2^42, or a range that ends before it begins");
  }
  status = CheckRows(header);
  if (status.ok()) status = CheckColumns(header);
  if (!status.ok()) return status;
  if (end > max_tensor_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("max_tensor_bytes: the tensor has ", end,
                                                     " bytes, but this client accepts at most ",
                                                     max_tensor_bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckSame(const v1::TensorHeader& got, const v1::TensorHeader& want) {
  if (got.fingerprint() != want.fingerprint()) {
    return absl::DataLossError(absl::StrCat("stream: resumed with fingerprint ", got.fingerprint(),
                                            ", want ", want.fingerprint()));
  }
  const int count = std::max(got.parts_size(), want.parts_size());
  for (int i = 0; i < count; ++i) {
    if (i >= std::min(got.parts_size(), want.parts_size()) ||
        !google::protobuf::util::MessageDifferencer::Equals(got.parts(i), want.parts(i))) {
      return absl::DataLossError(absl::StrCat("stream: resumed with part ", i, " ",
                                              PartAsText(got, i), ", want ", PartAsText(want, i)));
    }
  }
  return absl::OkStatus();
}

}  // namespace attnbias
