// SPDX-License-Identifier: Apache-2.0
#include "server/codec/headers.h"

#include <cstdint>
#include <string>
#include <vector>

namespace attnbias {
namespace {

void Describe(const Part& part, const Plan& plan, v1::TensorPart* header) {
  header->set_name(std::string(part.name));
  header->set_data_type(static_cast<v1::DataType>(plan.data_type()));
  header->set_form(part.form);
  header->mutable_shape()->Assign(part.shape.begin(), part.shape.end());
  header->set_offset(part.offset);
  header->set_size_bytes(part.size_bytes);
  if (part.form == v1::FORM_TOEPLITZ) {
    // The least key minus the greatest query.
    header->set_first_relative_position(plan.window().keys.hull().begin -
                                        (plan.window().queries.hull().end - 1));
  }
}

}  // namespace

v1::TensorHeader HeaderOf(const Plan& plan) {
  v1::TensorHeader header;
  for (const Part& part : plan.parts()) {
    Describe(part, plan, header.add_parts());
  }
  header.set_total_bytes(plan.total_bytes());
  header.set_fingerprint(plan.fingerprint());
  header.set_encoding_fingerprint(plan.encoding_fingerprint());
  *header.mutable_resolved_spec() = plan.resolved_spec();
  for (const Range rows : plan.fully_masked_rows()) {
    v1::Range& masked = *header.add_fully_masked_rows();
    masked.set_begin(rows.begin);
    masked.set_end(rows.end);
  }
  const std::vector<int32_t> column_axes = plan.ColumnAxes();
  header.mutable_column_axes()->Assign(column_axes.begin(), column_axes.end());
  if (plan.encoding().derive == nullptr) return header;
  for (const DerivedValue& value : plan.encoding().derive()) {
    v1::DerivedValue& derived = *header.add_derived();
    derived.set_name(std::string(value.name));
    derived.mutable_values()->Assign(value.values.begin(), value.values.end());
  }
  return header;
}

v1::LogitsHeader HeaderOf(const LogitsPlan& plan) {
  v1::LogitsHeader header;
  header.set_num_heads(plan.spec().num_heads());
  header.set_width(plan.output_width());
  header.set_data_type(plan.spec().output_data_type());
  header.set_query_offset(plan.query_offset());
  header.set_work_data_type(static_cast<v1::DataType>(plan.work_type()));
  header.set_roundings(plan.roundings());
  return header;
}

}  // namespace attnbias
