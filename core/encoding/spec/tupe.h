// SPDX-License-Identifier: Apache-2.0
// TUPE: what can be asked for.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_TUPE_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_TUPE_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/encoding/spec/field.h"
#include "core/encoding/spec/limits.h"

namespace attnbias {

struct TupeSpec {
  static constexpr std::string_view kName = "tupe";
  int64_t num_heads = 0;
  std::optional<Table> relative_table;
  Defaulted<int64_t> num_buckets = DefaultsTo<int64_t>(32);
  Defaulted<int64_t> max_distance = DefaultsTo<int64_t>(128);
  std::optional<Table> position_table;
  std::optional<Table> query_weight;
  std::optional<Table> query_bias;
  std::optional<Table> key_weight;
  std::optional<Table> key_bias;
  std::optional<Table> norm_weight;
  std::optional<Table> norm_bias;
  Defaulted<double> norm_eps = DefaultsTo(1e-5);
  bool reset_class_token = false;
  // Absent: 1 / sqrt(2 d_model / num_heads).
  std::optional<double> position_scale;

  // Heads that are not set are those of the table.
  void Derive() { DeriveNumHeads(relative_table, 1, num_heads); }

  FieldList Fields() {
    // With neither term it is asked for buckets.
    const bool no_buckets = position_table && !relative_table;
    return {Field(1, "num_heads", num_heads).In(1, kMaxNumHeads).OfBias(),
            Field(2, "relative_table", relative_table).OfBias(),
            Field(3, "num_buckets", num_buckets)
                .Idle(no_buckets, "there is no relative_table"),
            Field(4, "max_distance", max_distance)
                .Idle(no_buckets, "there is no relative_table"),
            Field(5, "position_table", position_table),
            Field(6, "query_weight", query_weight),
            Field(7, "query_bias", query_bias),
            Field(8, "key_weight", key_weight),
            Field(9, "key_bias", key_bias),
            Field(10, "norm_weight", norm_weight),
            Field(11, "norm_bias", norm_bias),
            Field(12, "norm_eps", norm_eps)
                .Above(0, 1)
                .Idle(!norm_weight, "there is no norm_weight"),
            Field(13, "reset_class_token", reset_class_token),
            Field(14, "position_scale", position_scale)};
  }

  // A position_scale that is given as its default is as good as none.
  void Canonicalise();
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_TUPE_H_
