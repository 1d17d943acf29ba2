// SPDX-License-Identifier: Apache-2.0
// A matrix of numbers as a picture: on a terminal, or as a file.
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

// Where a picture is drawn.
struct Canvas {
  Size most;
  // In widths of a pixel.
  int pixel_height;
  // Pixels of a side up to which a small matrix is enlarged.
  int64_t enlarged_to;
};

// A terminal, beside row labels of so many characters.
Canvas CanvasOf(const Screen& screen, int label_width);

// Pixels for a matrix. `square`: its rows and columns count the same, and have
// the same scale.
Size Fit(Size matrix, const Canvas& canvas, bool square);

// Position, among `size`, of sample `index` of `count` spread evenly.
int64_t Spread(int64_t index, int64_t count, int64_t size);

// What is drawn of a matrix: as many rows and columns as pixels, or fewer.
struct HeatMap {
  std::string title;
  // Positions.
  std::vector<int64_t> rows;
  std::vector<int64_t> columns;
  // Row-major. What is not finite is left out of the scale.
  std::vector<double> numbers;
  // What stands in the place of such numbers.
  std::string left_out;
  Size pixels;
};

// `share` in [0, 1] on the way from the least number to the greatest.
Color ColorOf(double share);

// Title, picture with positions at its edges, legend.
std::string DrawText(const HeatMap& map, const Screen& screen);

// What the colours stand for: "dark 0.25, light 4.5, striped: masked".
std::string LegendText(const HeatMap& map);

// INVALID_ARGUMENT if a picture cannot go to a file of this name.
absl::Status CheckPngName(const std::string& path);

// The picture as a PNG file, without title and legend; all or nothing.
absl::Status WritePng(const HeatMap& map, const std::string& path);

}  // namespace attnbias
