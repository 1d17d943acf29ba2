// SPDX-License-Identifier: Apache-2.0
#include "server/codec/spec_codec.h"

#include <string>
#include <utility>
#include <variant>

#include "core/base/status_macros.h"
#include "core/encoding/make_encoding.h"
#include "server/codec/field_codec.h"

namespace attnbias {
namespace {

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

absl::StatusOr<TensorSpec> DecodeSpec(const v1::TensorSpec& wire,
                                      const TableSet& tables) {
  TensorSpec spec;
  ATTNBIAS_ASSIGN_OR_RETURN(spec.encoding,
                            DecodeOneof(wire, "encoding", tables,
                                        &EncodingRegistration::DefaultSpec));
  if (wire.has_table()) {
    ATTNBIAS_RETURN_IF_ERROR(
        DecodeFields(wire.table(), "table", tables,
                     spec.extent.emplace<TableExtent>().Fields()));
  } else if (wire.has_pair()) {
    ATTNBIAS_RETURN_IF_ERROR(
        DecodeFields(wire.pair(), "pair", tables,
                     spec.extent.emplace<PairExtent>().Fields()));
  } else if (wire.has_grid()) {
    ATTNBIAS_RETURN_IF_ERROR(
        DecodeFields(wire.grid(), "grid", tables,
                     spec.extent.emplace<GridExtent>().Fields()));
  }
  ATTNBIAS_RETURN_IF_ERROR(
      DecodeFields(wire.output(), "output", tables, spec.output.Fields()));
  if (spec.output.mask.has_value()) {
    ATTNBIAS_RETURN_IF_ERROR(DecodeFill(wire.output().mask(), "output.mask.",
                                        &spec.output.mask->fill));
  }
  return spec;
}

v1::TensorSpec EncodeSpec(TensorSpec spec) {
  v1::TensorSpec wire;
  EncodeOneof(std::move(spec.encoding), &wire);
  if (auto* table = std::get_if<TableExtent>(&spec.extent)) {
    EncodeFields(table->Fields(), wire.mutable_table());
  } else if (auto* pair = std::get_if<PairExtent>(&spec.extent)) {
    EncodeFields(pair->Fields(), wire.mutable_pair());
  } else if (auto* grid = std::get_if<GridExtent>(&spec.extent)) {
    EncodeFields(grid->Fields(), wire.mutable_grid());
  }
  EncodeFields(spec.output.Fields(), wire.mutable_output());
  if (!spec.output.mask.has_value()) return wire;
  const MaskFill& fill = spec.output.mask->fill;
  v1::Mask& mask = *wire.mutable_output()->mutable_mask();
  if (const double* value = std::get_if<double>(&fill)) {
    mask.set_fill_value(*value);
  } else if (std::holds_alternative<Lowest>(fill)) {
    mask.set_fill_lowest(true);
  }
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
    EncodeFields(FieldsOf(rows), header.add_fully_masked_rows());
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
