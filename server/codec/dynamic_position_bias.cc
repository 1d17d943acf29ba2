// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "server/codec/encoding_codec.h"
#include "server/codec/table_codec.h"

namespace attnbias {
namespace {

absl::Status DecodeLayer(const v1::PositionMlpLayer& wire,
                         const TableSet& tables, const std::string& path,
                         PositionMlpLayer& layer) {
  const std::string weight = path + ".weight";
  const std::string bias = path + ".bias";
  const std::string norm_weight = path + ".norm_weight";
  const std::string norm_bias = path + ".norm_bias";
  return DecodeTables(
      tables,
      {
          {wire.has_weight(), wire.weight(), weight.c_str(), &layer.weight},
          {wire.has_bias(), wire.bias(), bias.c_str(), &layer.bias},
          {wire.has_norm_weight(), wire.norm_weight(), norm_weight.c_str(),
           &layer.norm_weight},
          {wire.has_norm_bias(), wire.norm_bias(), norm_bias.c_str(),
           &layer.norm_bias},
      });
}

}  // namespace

absl::StatusOr<EncodingSpec> Decode(const v1::DynamicPositionBias& wire,
                                    const TableSet& tables) {
  DynamicPositionBiasSpec spec;
  spec.num_heads = wire.num_heads();
  spec.log_distance = wire.log_distance();
  for (int i = 0; i < wire.layers_size(); ++i) {
    ATTNBIAS_RETURN_IF_ERROR(
        DecodeLayer(wire.layers(i), tables,
                    absl::StrCat("dynamic_position_bias.layers[", i, "]"),
                    spec.layers.emplace_back()));
  }
  return spec;
}

void Encode(const DynamicPositionBiasSpec& spec,
            v1::DynamicPositionBias* wire) {
  wire->set_num_heads(static_cast<int32_t>(spec.num_heads));
  wire->set_log_distance(spec.log_distance);
  for (const PositionMlpLayer& layer : spec.layers) {
    v1::PositionMlpLayer* out = wire->add_layers();
    if (layer.weight) EncodeTable(*layer.weight, out->mutable_weight());
    if (layer.bias) EncodeTable(*layer.bias, out->mutable_bias());
    if (layer.norm_weight) {
      EncodeTable(*layer.norm_weight, out->mutable_norm_weight());
    }
    if (layer.norm_bias) {
      EncodeTable(*layer.norm_bias, out->mutable_norm_bias());
    }
  }
}

}  // namespace attnbias
