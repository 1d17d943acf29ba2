// SPDX-License-Identifier: Apache-2.0
// How models use the position tables of their checkpoints: what of an
// encoding's spec stands in config.json, and what is fixed in the model's code.
//
// Facts are those of transformers 5.23, or of the last version that had them;
// its own computation is what a spec's answer equals.
#ifndef ATTNBIAS_CORE_MOUNT_TABLE_USE_H_
#define ATTNBIAS_CORE_MOUNT_TABLE_USE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "core/encoding/spec/any_spec.h"
#include "core/mount/model_config.h"
#include "core/table/table.h"

namespace attnbias {

// Where a model uses a table, or several together.
struct Place {
  // Of the layer, or of stage and block, where the model has a table for each.
  std::vector<int64_t> numbers;
  // By what they are called beside one another; one alone has no name.
  std::map<std::string_view, Table> tables;

  const Table& table() const { return tables.at(""); }
};

// Nothing where no encoding's fields can say what the model does.
using Use = std::optional<EncodingSpec> (*)(const Place& place,
                                            ModelConfig& config);

std::optional<EncodingSpec> T5Encoder(const Place& place, ModelConfig& config);
std::optional<EncodingSpec> T5Decoder(const Place& place, ModelConfig& config);
std::optional<EncodingSpec> MpnetBias(const Place& place, ModelConfig& config);

// Position p is row p.
std::optional<EncodingSpec> PositionsFrom0(const Place& place,
                                           ModelConfig& config);
// Position p is row p + 2.
std::optional<EncodingSpec> PositionsFrom2(const Place& place,
                                           ModelConfig& config);
std::optional<EncodingSpec> BertPositions(const Place& place,
                                          ModelConfig& config);
std::optional<EncodingSpec> BertDistances(const Place& place,
                                          ModelConfig& config);
std::optional<EncodingSpec> RobertaPositions(const Place& place,
                                             ModelConfig& config);
std::optional<EncodingSpec> BeitPositions(const Place& place,
                                          ModelConfig& config);

std::optional<EncodingSpec> SwinBias(const Place& place, ModelConfig& config);
std::optional<EncodingSpec> SwinV2Bias(const Place& place, ModelConfig& config);
std::optional<EncodingSpec> BeitBias(const Place& place, ModelConfig& config);

// The rows of the table that pairs take.
std::optional<EncodingSpec> DebertaIndices(const Place& place,
                                           ModelConfig& config);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_MOUNT_TABLE_USE_H_
