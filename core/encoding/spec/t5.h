// SPDX-License-Identifier: Apache-2.0
// T5's relative position bias: what can be asked for.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_T5_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_T5_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/encoding/spec/bucket_rule.h"
#include "core/encoding/spec/field.h"
#include "core/encoding/spec/limits.h"

namespace attnbias {

struct T5Spec {
  static constexpr std::string_view kName = "t5";
  int64_t num_heads = 0;
  int64_t num_buckets = 32;
  int64_t max_distance = 128;
  std::optional<bool> bidirectional;
  std::optional<Table> table;
  BucketRule bucket_rule = BucketRule::kExact;

  // Heads that are not set are those of the table.
  void Derive() { DeriveNumHeads(table, 1, num_heads); }

  FieldList Fields() {
    return {Field(1, "num_heads", num_heads)
                .In(1, kMaxNumHeads)
                .OfBias()
                .NotInIdentity(),
            Field(2, "num_buckets", num_buckets),
            Field(3, "max_distance", max_distance),
            Field(4, "bidirectional", bidirectional),
            Field(5, "table", table).OfBias(),
            Field(6, "bucket_rule", bucket_rule)};
  }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_T5_H_
