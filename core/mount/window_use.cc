// SPDX-License-Identifier: Apache-2.0
// Tables of an image's tokens: how many of them a table is for, in the models
// that have them.
#include <algorithm>
#include <array>

#include "core/encoding/spec/swin.h"
#include "core/encoding/spec/swin_v2.h"
#include "core/mount/table_use.h"

namespace attnbias {
namespace {

// Patches of an image, downwards and across.
std::array<int64_t, 2> GridOf(ModelConfig& config, int64_t patch_size) {
  const std::array<int64_t, 2> image = config.Sides("image_size", 224);
  const std::array<int64_t, 2> patch = config.Sides("patch_size", patch_size);
  return {image[0] / patch[0], image[1] / patch[1]};
}

std::array<int64_t, 2> BeitGrid(ModelConfig& config) {
  return GridOf(config, 16);
}

int64_t WindowSize(ModelConfig& config) {
  return config.Integer("window_size", 7);
}

}  // namespace

// Where a stage has fewer tokens than a window, the table is a whole window's
// nevertheless.
std::optional<EncodingSpec> SwinBias(const Place& place, ModelConfig& config) {
  const int64_t window = WindowSize(config);
  return SwinSpec{.window_height = window,
                  .window_width = window,
                  .num_heads = place.table().columns(),
                  .table = place.table()};
}

// A window is no larger than its stage, which has half the side of the stage
// before; where height and width differ, it is a square of what the height
// leaves.
std::optional<EncodingSpec> SwinV2Bias(const Place& place,
                                       ModelConfig& config) {
  if (place.tables.size() < 3) return std::nullopt;
  const int64_t stage = place.numbers.front();
  const int64_t height = GridOf(config, 4)[0];
  const int64_t window =
      std::min(WindowSize(config), stage < 63 ? height >> stage : 0);
  const Table& output_weight = place.tables.at("mlp.2.weight");
  SwinV2Spec spec{.window_height = window,
                  .window_width = window,
                  .num_heads = output_weight.rows(),
                  .hidden_weight = place.tables.at("mlp.0.weight"),
                  .hidden_bias = place.tables.at("mlp.0.bias"),
                  .output_weight = output_weight};
  const int64_t pretrained =
      config.Element("pretrained_window_sizes", stage, 0);
  if (pretrained > 0) {
    spec.pretrained_window_height = pretrained;
    spec.pretrained_window_width = pretrained;
  }
  return spec;
}

// The table of a grid that is not square is read with its sides exchanged and
// resampled: no row of the answer is one of the table's.
std::optional<EncodingSpec> BeitBias(const Place& place, ModelConfig& config) {
  const auto [height, width] = BeitGrid(config);
  if (height != width) return std::nullopt;
  return BeitSpec{.window_height = height,
                  .window_width = width,
                  .num_heads = place.table().columns(),
                  .table = place.table()};
}

// Those of a grid that is not square are resampled, too.
std::optional<EncodingSpec> BeitPositions(const Place& place,
                                          ModelConfig& config) {
  const auto [height, width] = BeitGrid(config);
  if (height != width) return std::nullopt;
  return PositionsFrom0(place, config);
}

}  // namespace attnbias
