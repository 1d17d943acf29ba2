// SPDX-License-Identifier: Apache-2.0
// DeBERTa-v2's relative embeddings: the indices of their rows.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/encoding/spec/deberta.h"
#include "core/mount/table_use.h"

namespace attnbias {

std::optional<EncodingSpec> DebertaIndices(const Place& place,
                                           ModelConfig& config) {
  const int64_t buckets = config.Integer("position_buckets", -1);
  int64_t reach = config.Integer("max_relative_positions", -1);
  if (reach < 1) reach = config.Integer("max_position_embeddings", 512);
  const int64_t rows = 2 * (buckets > 0 ? buckets : reach);
  if (place.table().rows() != rows) {
    config.Refuse(buckets > 0 ? "position_buckets" : "max_relative_positions",
                  absl::StrCat(rows / 2),
                  absl::StrCat(place.table().rows() / 2,
                               ", half the rows of rel_embeddings"));
  }
  DebertaSpec spec{.bucket_size = std::max<int64_t>(buckets, 0),
                   .max_position = reach};
  if (spec.bucket_size != 0) spec.edge = DebertaEdge::kHf;
  return spec;
}

}  // namespace attnbias
