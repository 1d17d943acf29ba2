// SPDX-License-Identifier: Apache-2.0
// Pictures of a matrix of numbers, on a terminal or as a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cli/screen.h"

namespace attnbias {

struct Color {
  uint8_t red;
  uint8_t green;
  uint8_t blue;

  bool operator==(const Color&) const = default;
};

struct Size {
  int64_t rows;
  int64_t columns;

  bool operator==(const Size&) const = default;
};

// The place of a picture.
struct Canvas {
  Size most;
  // Height of a pixel in widths of a pixel.
  int pixel_height;
  // Pixels of a side up to which a small matrix is enlarged.
  int64_t enlarged_to;
};

// Returns the canvas of a terminal, next to row labels of this width.
Canvas CanvasOf(const Screen& screen, int label_width);

// Returns the pixels for a matrix. `square` gives rows and columns one scale.
Size Fit(Size matrix, const Canvas& canvas, bool square);

// Returns the index, below `size`, of sample `index` of `count` spread evenly.
int64_t Spread(int64_t index, int64_t count, int64_t size);

// A matrix, or samples of it: at most as many rows and columns as pixels.
struct HeatMap {
  std::string title;
  // Positions.
  std::vector<int64_t> rows;
  std::vector<int64_t> columns;
  // [rows, columns], row-major. The scale excludes numbers that are not finite.
  std::vector<double> numbers;
  // Name of those numbers in the legend.
  std::string left_out;
  Size pixels;
};

// Returns the colour at `share` in [0, 1] of the range from the least number to
// the greatest.
Color ColorOf(double share);

// Returns title, picture with positions at its edges, and legend.
std::string DrawText(const HeatMap& map, const Screen& screen);

// Returns the meaning of the colours: "dark 0.25, light 4.5, striped: masked".
std::string LegendText(const HeatMap& map);

// INVALID_ARGUMENT if a picture cannot go to a file of this name.
absl::Status CheckPngName(const std::string& path);

// Writes the picture as a PNG file, without title and legend; all or nothing.
absl::Status WritePng(const HeatMap& map, const std::string& path);

}  // namespace attnbias
