// SPDX-License-Identifier: Apache-2.0
#include "server/codec/logits_codec.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/encoding/spec/limits.h"
#include "server/codec/enums.h"
#include "server/codec/field_codec.h"
#include "server/codec/table_codec.h"

namespace attnbias {
namespace {

static_assert(SameNumber(Direction::kLeftToRight, v1::DIRECTION_LEFT_TO_RIGHT));
static_assert(SameNumber(Direction::kRightToLeft, v1::DIRECTION_RIGHT_TO_LEFT));
static_assert(SameNumber(Direction::kBidirectional,
                         v1::DIRECTION_BIDIRECTIONAL));

absl::StatusOr<Array> DecodeArray(const v1::TableRef& ref,
                                  const std::string& path,
                                  const TableSet& tables) {
  if (ref.layout() != v1::TABLE_LAYOUT_UNSPECIFIED) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ".layout: got one, want none: the axes are in one order"));
  }
  absl::StatusOr<Table> table = DecodeTable(ref, path, tables);
  ATTNBIAS_RETURN_IF_ERROR(table.status());
  if (table->size() > kMaxNetworkNumbers) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": got ", table->size(), " numbers, want at most ",
                     kMaxNetworkNumbers));
  }
  Array array{
      table->data_type(), {table->shape().begin(), table->shape().end()}, {}};
  array.values.reserve(table->size());
  for (int64_t i = 0; i < table->size(); ++i) {
    array.values.push_back(table->At(i));
  }
  return array;
}

// Sets `out` where `has` says that the table was sent.
absl::Status DecodeInto(bool has, const v1::TableRef& ref,
                        const TableSet& tables, const std::string& path,
                        std::optional<Array>* out) {
  if (!has) return absl::OkStatus();
  absl::StatusOr<Array> array = DecodeArray(ref, path, tables);
  ATTNBIAS_RETURN_IF_ERROR(array.status());
  *out = *std::move(array);
  return absl::OkStatus();
}

template <typename Term>
absl::Status DecodeTerm(const v1::RelativeTable& wire, const TableSet& tables,
                        const std::string& path, LogitsSpec* spec) {
  Term term;
  ATTNBIAS_RETURN_IF_ERROR(DecodeInto(wire.has_table(), wire.table(), tables,
                                      path + ".table", &term.table));
  if (wire.has_left()) term.left = wire.left();
  if (wire.has_right()) term.right = wire.right();
  spec->term = std::move(term);
  return absl::OkStatus();
}

absl::Status DecodeTerm(const v1::SinusoidalDistances& wire,
                        const TableSet& tables, LogitsSpec* spec) {
  SinusoidalDistancesSpec term;
  const std::string path = "sinusoidal_distances";
  if (wire.sinusoidal().layout() == v1::SINUSOIDAL_LAYOUT_UNSPECIFIED) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        ".sinusoidal.layout: not set, want CONCATENATED (Transformer-XL, "
        "XLNet), INTERLEAVED (Conformer) or TENSOR2TENSOR"));
  }
  ATTNBIAS_RETURN_IF_ERROR(DecodeFields(wire.sinusoidal(), path + ".sinusoidal",
                                        tables, term.sinusoidal.Fields()));
  ATTNBIAS_RETURN_IF_ERROR(DecodeInto(wire.has_projection(), wire.projection(),
                                      tables, path + ".projection",
                                      &term.projection));
  if (wire.has_clamp_len()) term.clamp_len = wire.clamp_len();
  term.symmetric = wire.symmetric();
  spec->term = std::move(term);
  return absl::OkStatus();
}

absl::Status DecodeTerm(const v1::AbsoluteKeys& wire, const TableSet& tables,
                        LogitsSpec* spec) {
  AbsoluteKeysSpec term;
  ATTNBIAS_RETURN_IF_ERROR(DecodeInto(wire.has_positions(), wire.positions(),
                                      tables, "absolute_keys.positions",
                                      &term.positions));
  ATTNBIAS_RETURN_IF_ERROR(DecodeInto(wire.has_projection(), wire.projection(),
                                      tables, "absolute_keys.projection",
                                      &term.projection));
  spec->term = std::move(term);
  return absl::OkStatus();
}

absl::Status DecodeTerm(const v1::LogitsSpec& wire, const TableSet& tables,
                        LogitsSpec* spec) {
  switch (wire.term_case()) {
    case v1::LogitsSpec::kShawKeys:
      return DecodeTerm<ShawKeysSpec>(wire.shaw_keys(), tables, "shaw_keys",
                                      spec);
    case v1::LogitsSpec::kShawValues:
      return DecodeTerm<ShawValuesSpec>(wire.shaw_values(), tables,
                                        "shaw_values", spec);
    case v1::LogitsSpec::kSinusoidalDistances:
      return DecodeTerm(wire.sinusoidal_distances(), tables, spec);
    case v1::LogitsSpec::kAbsoluteKeys:
      return DecodeTerm(wire.absolute_keys(), tables, spec);
    case v1::LogitsSpec::TERM_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LogitsSpec> DecodeLogitsSpec(const v1::LogitsSpec& wire,
                                            const TableSet& tables) {
  LogitsSpec spec;
  ATTNBIAS_RETURN_IF_ERROR(DecodeTerm(wire, tables, &spec));
  spec.num_heads = wire.num_heads();
  spec.head_dim = wire.head_dim();
  spec.query_length = wire.query_length();
  spec.key_length = wire.key_length();
  spec.alignment = OptionalEnum<Alignment>(wire.alignment());
  if (wire.has_query_offset()) spec.query_offset = wire.query_offset();
  spec.direction = OptionalEnum<Direction>(wire.direction());
  spec.data_type = EnumOr(wire.data_type(), spec.data_type);
  spec.output_data_type =
      EnumOr(wire.output_data_type(), spec.output_data_type);
  if (wire.has_fill_value()) spec.fill = wire.fill_value();
  if (wire.has_fill_lowest()) {
    if (!wire.fill_lowest()) {
      return absl::InvalidArgumentError(
          "fill_lowest: got false, want true or the field unset");
    }
    spec.fill = Lowest();
  }
  if (wire.has_scale()) spec.scale = wire.scale();
  ATTNBIAS_RETURN_IF_ERROR(DecodeInto(wire.has_query_bias(), wire.query_bias(),
                                      tables, "query_bias", &spec.query_bias));
  spec.bias_alone = wire.bias_alone();
  return spec;
}

v1::LogitsHeader EncodeLogitsHeader(const LogitsPlan& plan) {
  v1::LogitsHeader header;
  header.set_num_heads(plan.spec().num_heads);
  header.set_width(plan.output_width());
  header.set_data_type(static_cast<v1::DataType>(plan.spec().output_data_type));
  header.set_query_offset(plan.query_offset());
  header.set_work_data_type(static_cast<v1::DataType>(plan.work_type()));
  header.set_roundings(plan.roundings());
  return header;
}

}  // namespace attnbias
