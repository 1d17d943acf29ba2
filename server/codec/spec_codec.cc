// SPDX-License-Identifier: Apache-2.0
#include "server/codec/spec_codec.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/status_macros.h"
#include "core/encoding/make_encoding.h"
#include "server/codec/enums.h"
#include "server/codec/field_codec.h"

namespace attnbias {
namespace {

static_assert(SameNumber(Form::kTable, v1::FORM_TABLE));
static_assert(SameNumber(Form::kToeplitz, v1::FORM_TOEPLITZ));
static_assert(SameNumber(Form::kKeyRow, v1::FORM_KEY_ROW));
static_assert(SameNumber(Form::kDense, v1::FORM_DENSE));
static_assert(SameNumber(Form::kBlockToeplitz2D, v1::FORM_BLOCK_TOEPLITZ_2D));
static_assert(SameNumber(Values::kBias, v1::VALUES_BIAS));
static_assert(SameNumber(Values::kBuckets, v1::VALUES_BUCKETS));
static_assert(SameNumber(Alignment::kStart, v1::ALIGNMENT_START));
static_assert(SameNumber(Alignment::kEnd, v1::ALIGNMENT_END));

Range DecodeRange(const v1::Range& range) {
  return {range.begin(), range.end()};
}

void EncodeRange(Range range, v1::Range* wire) {
  wire->set_begin(range.begin);
  wire->set_end(range.end);
}

std::vector<int64_t> DecodeList(const v1::PositionList& list) {
  return {list.positions().begin(), list.positions().end()};
}

void EncodeList(const std::vector<int64_t>& list, v1::PositionList* wire) {
  wire->mutable_positions()->Assign(list.begin(), list.end());
}

TableExtent DecodeExtent(const v1::TableExtent& wire) {
  TableExtent extent;
  if (wire.has_positions()) extent.positions = DecodeRange(wire.positions());
  for (const v1::PositionList& list : wire.position_ids()) {
    extent.position_ids.push_back(DecodeList(list));
  }
  return extent;
}

PairExtent DecodeExtent(const v1::PairExtent& wire) {
  PairExtent extent;
  extent.query_length = wire.query_length();
  extent.key_length = wire.key_length();
  extent.alignment = OptionalEnum<Alignment>(wire.alignment());
  if (wire.has_query_offset()) extent.query_offset = wire.query_offset();
  if (wire.has_queries()) extent.queries = DecodeRange(wire.queries());
  if (wire.has_keys()) extent.keys = DecodeRange(wire.keys());
  if (wire.has_heads()) extent.heads = DecodeRange(wire.heads());
  if (wire.has_query_positions()) {
    extent.query_positions = DecodeList(wire.query_positions());
  }
  if (wire.has_key_positions()) {
    extent.key_positions = DecodeList(wire.key_positions());
  }
  return extent;
}

GridExtent DecodeExtent(const v1::GridExtent& wire) {
  GridExtent extent;
  if (wire.has_queries()) extent.queries = DecodeRange(wire.queries());
  if (wire.has_keys()) extent.keys = DecodeRange(wire.keys());
  if (wire.has_heads()) extent.heads = DecodeRange(wire.heads());
  return extent;
}

absl::StatusOr<Mask> DecodeMask(const v1::Mask& wire) {
  Mask mask;
  mask.causal = wire.causal();
  if (wire.has_window_left()) mask.window_left = wire.window_left();
  if (wire.has_window_right()) mask.window_right = wire.window_right();
  if (wire.has_fill_value()) mask.fill = wire.fill_value();
  if (wire.has_fill_lowest()) {
    if (!wire.fill_lowest()) {
      return absl::InvalidArgumentError(
          "output.mask.fill_lowest: got false, want true or the field unset");
    }
    mask.fill = Lowest();
  }
  return mask;
}

absl::StatusOr<Output> DecodeOutput(const v1::Output& wire) {
  Output output;
  output.data_type = OptionalEnum<DataType>(wire.data_type());
  output.form = OptionalEnum<Form>(wire.form());
  output.values = OptionalEnum<Values>(wire.values());
  if (wire.has_mask()) {
    ATTNBIAS_ASSIGN_OR_RETURN(output.mask, DecodeMask(wire.mask()));
  }
  if (wire.has_scale()) output.scale = wire.scale();
  return output;
}

void EncodeExtent(const TableExtent& extent, v1::TableExtent* wire) {
  if (extent.positions)
    EncodeRange(*extent.positions, wire->mutable_positions());
  for (const std::vector<int64_t>& list : extent.position_ids) {
    EncodeList(list, wire->add_position_ids());
  }
}

void EncodeExtent(const PairExtent& extent, v1::PairExtent* wire) {
  wire->set_query_length(extent.query_length);
  wire->set_key_length(extent.key_length);
  if (extent.alignment) {
    wire->set_alignment(static_cast<v1::Alignment>(*extent.alignment));
  }
  if (extent.query_offset) wire->set_query_offset(*extent.query_offset);
  if (extent.queries) EncodeRange(*extent.queries, wire->mutable_queries());
  if (extent.keys) EncodeRange(*extent.keys, wire->mutable_keys());
  if (extent.heads) EncodeRange(*extent.heads, wire->mutable_heads());
  if (extent.query_positions) {
    EncodeList(*extent.query_positions, wire->mutable_query_positions());
  }
  if (extent.key_positions) {
    EncodeList(*extent.key_positions, wire->mutable_key_positions());
  }
}

void EncodeExtent(const GridExtent& extent, v1::GridExtent* wire) {
  if (extent.queries) EncodeRange(*extent.queries, wire->mutable_queries());
  if (extent.keys) EncodeRange(*extent.keys, wire->mutable_keys());
  if (extent.heads) EncodeRange(*extent.heads, wire->mutable_heads());
}

void EncodeMask(const Mask& mask, v1::Mask* wire) {
  wire->set_causal(mask.causal);
  if (mask.window_left) wire->set_window_left(*mask.window_left);
  if (mask.window_right) wire->set_window_right(*mask.window_right);
  if (const double* value = std::get_if<double>(&mask.fill)) {
    wire->set_fill_value(*value);
  } else if (std::holds_alternative<Lowest>(mask.fill)) {
    wire->set_fill_lowest(true);
  }
}

void EncodeOutput(const Output& output, v1::Output* wire) {
  if (output.data_type) {
    wire->set_data_type(static_cast<v1::DataType>(*output.data_type));
  }
  if (output.form) wire->set_form(static_cast<v1::Form>(*output.form));
  if (output.values) wire->set_values(static_cast<v1::Values>(*output.values));
  if (output.mask) EncodeMask(*output.mask, wire->mutable_mask());
  wire->set_scale(output.scale);
}

void EncodePart(const Part& part, const Plan& plan, v1::TensorPart* wire) {
  wire->set_name(std::string(part.name));
  wire->set_data_type(static_cast<v1::DataType>(plan.data_type()));
  wire->set_form(static_cast<v1::Form>(part.form));
  wire->mutable_shape()->Assign(part.shape.begin(), part.shape.end());
  wire->set_offset(part.offset);
  wire->set_size_bytes(part.size_bytes);
  if (part.form == Form::kToeplitz) {
    // The least key minus the greatest query.
    wire->set_first_relative_position(plan.window().keys.hull().begin -
                                      (plan.window().queries.hull().end - 1));
  }
}

}  // namespace

absl::StatusOr<TensorSpec> DecodeSpec(const v1::TensorSpec& spec,
                                      const TableSet& tables) {
  TensorSpec result;
  ATTNBIAS_ASSIGN_OR_RETURN(result.encoding,
                            DecodeOneof(spec, "encoding", tables,
                                        &EncodingRegistration::DefaultSpec));
  if (spec.has_table()) result.extent = DecodeExtent(spec.table());
  if (spec.has_pair()) result.extent = DecodeExtent(spec.pair());
  if (spec.has_grid()) result.extent = DecodeExtent(spec.grid());
  ATTNBIAS_ASSIGN_OR_RETURN(result.output, DecodeOutput(spec.output()));
  return result;
}

v1::TensorSpec EncodeSpec(const TensorSpec& spec) {
  v1::TensorSpec wire;
  EncodeOneof(spec.encoding, &wire);
  if (const auto* table = std::get_if<TableExtent>(&spec.extent)) {
    EncodeExtent(*table, wire.mutable_table());
  } else if (const auto* pair = std::get_if<PairExtent>(&spec.extent)) {
    EncodeExtent(*pair, wire.mutable_pair());
  } else if (const auto* grid = std::get_if<GridExtent>(&spec.extent)) {
    EncodeExtent(*grid, wire.mutable_grid());
  }
  EncodeOutput(spec.output, wire.mutable_output());
  return wire;
}

v1::TensorHeader EncodeHeader(const Plan& plan) {
  v1::TensorHeader header;
  for (const Part& part : plan.parts()) {
    EncodePart(part, plan, header.add_parts());
  }
  header.set_total_bytes(plan.total_bytes());
  header.set_fingerprint(plan.fingerprint());
  header.set_encoding_fingerprint(plan.encoding_fingerprint());
  *header.mutable_resolved_spec() = EncodeSpec(plan.resolved_spec());
  for (Range rows : plan.fully_masked_rows()) {
    EncodeRange(rows, header.add_fully_masked_rows());
  }
  if (plan.encoding().derive == nullptr) return header;
  for (const DerivedValue& value : plan.encoding().derive()) {
    v1::DerivedValue& derived = *header.add_derived();
    derived.set_name(std::string(value.name));
    derived.mutable_values()->Assign(value.values.begin(), value.values.end());
  }
  return header;
}

}  // namespace attnbias
