// SPDX-License-Identifier: Apache-2.0
// Draws pictures of a matrix, on a terminal or into a file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace attnbias {

enum class Colors { kNone, k256, k24Bit };

// Size and colors of an output. The defaults are for a file or a pipe.
struct Screen {
  int columns = 80;
  int lines = 44;
  Colors colors = Colors::kNone;
};

// Returns the colors that a terminal can show in this environment: none if NO_COLOR is set, or if
// TERM is empty or "dumb".
Colors ColorsOf(const std::function<const char*(const char*)>& environment);

// Returns the size and colors of the output on `descriptor`.
Screen ScreenOf(int descriptor);

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

// Area available for a picture.
struct Canvas {
  Size most;
  // Height of a pixel, in pixel widths.
  int pixel_height;
  // Maximum pixels per side to which a small matrix is enlarged.
  int64_t enlarged_to;
};

// Returns the part of a terminal that row labels of this width leave for a picture.
Canvas CanvasOf(const Screen& screen, int label_width);

// Returns the size of a matrix's picture, in pixels. If `square`, rows and columns have the same
// scale.
Size Fit(Size matrix, const Canvas& canvas, bool square);

// Returns the index, in [0, size), of sample `index` out of `count` evenly spread samples.
int64_t Spread(int64_t index, int64_t count, int64_t size);

// The pixels of a matrix, or of samples from it.
struct HeatMap {
  std::string title;
  // Position of each pixel row and pixel column.
  std::vector<int64_t> rows;
  std::vector<int64_t> columns;
  // [rows, columns], row-major. The scale excludes non-finite values.
  std::vector<double> numbers;
  // Name for the non-finite values in the legend.
  std::string left_out;
};

// Returns the color at `share`, in [0, 1], of the range from the smallest value to the largest.
Color ColorOf(double share);

// Returns the title, the picture with positions at its edges, and the legend.
std::string DrawText(const HeatMap& map, const Screen& screen);

// Returns the meaning of the colors, such as "dark 0.25, light 4.5, striped: masked", or of the
// shades, such as "blank 0.25, @ 4.5, /: masked".
std::string LegendText(const HeatMap& map, Colors colors);

// Writes the picture, without title and legend, to a PNG file; writes all of it or nothing.
absl::Status WritePng(const HeatMap& map, const std::string& path);

}  // namespace attnbias
