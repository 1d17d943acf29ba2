// SPDX-License-Identifier: Apache-2.0
#include "client/cli/heat_map.h"

#include <png.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "client/cli/file_io.h"

namespace attnbias {
namespace {

// Nine colours of viridis, whose lightness rises evenly: steps look the same to
// colour-blind readers and in print. Signs are left to the legend, since most
// biases have one sign.
constexpr std::array<Color, 9> kColors = {{{68, 1, 84},
                                           {71, 44, 122},
                                           {59, 81, 139},
                                           {44, 113, 142},
                                           {33, 144, 141},
                                           {39, 173, 129},
                                           {92, 200, 99},
                                           {170, 220, 50},
                                           {253, 231, 37}}};
// The same path through the 256 colours of xterm, from dark to light. Nearest
// colours would not rise evenly.
constexpr std::array<int, 11> kCodes = {53, 54, 24, 30, 36, 42, 78, 113, 149, 184, 220};

struct Ink {
  Color color;
  // Index among the 256 colours.
  int code;
};

// Stripes in place of numbers that are not finite.
constexpr Ink kDarkStripe = {{108, 108, 108}, 242};
constexpr Ink kLightStripe = {{148, 148, 148}, 246};
constexpr int64_t kPixelsOfStripe = 4;  // where pixels are small

// Shades from the least number to the greatest.
constexpr absl::string_view kShades = " .:-=+*#%@";
constexpr char kNoShade = '/';

constexpr char kUpperHalf[] = "\u2580";
constexpr char kReset[] = "\033[0m";
constexpr int64_t kBarLength = 32;
// Lines from one label of a row to the next.
constexpr int64_t kLinesPerLabel = 8;
// Characters from one label of a column to the next, where columns are narrow.
constexpr int64_t kCharactersPerLabel = 16;
// Least space between labels.
constexpr int64_t kLabelGap = 2;
// Lines of title, labels of columns, legend and the prompt that follows.
constexpr int kLinesAround = 4;

// The least and the greatest finite number.
struct Bounds {
  double least = INFINITY;
  double greatest = -INFINITY;
  bool all_finite = true;

  bool empty() const { return least > greatest; }
};

Bounds BoundsOf(const HeatMap& map) {
  Bounds bounds;
  for (const double number : map.numbers) {
    if (!std::isfinite(number)) {
      bounds.all_finite = false;
      continue;
    }
    bounds.least = std::min(bounds.least, number);
    bounds.greatest = std::max(bounds.greatest, number);
  }
  return bounds;
}

// Returns the place of a number between the bounds, from 0 to 1; NaN if the
// number is not finite. Halves keep the difference of two doubles finite.
double ShareOf(double number, const Bounds& bounds) {
  if (!std::isfinite(number)) return NAN;
  const double range = bounds.greatest / 2 - bounds.least / 2;
  return range == 0 ? 0 : (number / 2 - bounds.least / 2) / range;
}

Ink InkOf(double share) {
  const auto last = static_cast<double>(kCodes.size() - 1);
  return {ColorOf(share), kCodes[static_cast<size_t>(std::lround(share * last))]};
}

// Shares and inks of pixels.
class Shares {
 public:
  explicit Shares(const HeatMap& map) : map_(map), bounds_(BoundsOf(map)) {}

  double At(int64_t row, int64_t column) const {
    const auto rows = static_cast<int64_t>(map_.rows.size());
    const auto columns = static_cast<int64_t>(map_.columns.size());
    const int64_t i = Spread(row, map_.pixels.rows, rows);
    const int64_t j = Spread(column, map_.pixels.columns, columns);
    return ShareOf(map_.numbers[static_cast<size_t>(i * columns + j)], bounds_);
  }

  Ink InkAt(int64_t row, int64_t column, int64_t stripe) const {
    const double share = At(row, column);
    if (!std::isnan(share)) return InkOf(share);
    return (row + column) / stripe % 2 == 0 ? kDarkStripe : kLightStripe;
  }

 private:
  const HeatMap& map_;
  const Bounds bounds_;
};

// Selects the colour of the character (38) or of the background (48).
std::string Select(int ground, const Ink& ink, Colors colors) {
  if (colors == Colors::k256) {
    return absl::StrCat("\033[", ground, ";5;", ink.code, "m");
  }
  return absl::StrCat("\033[", ground, ";2;", ink.color.red, ";", ink.color.green, ";",
                      ink.color.blue, "m");
}

char ShadeOf(double share) {
  if (std::isnan(share)) return kNoShade;
  const auto last = static_cast<double>(kShades.size() - 1);
  return kShades[static_cast<size_t>(std::lround(share * last))];
}

// Draws a line of characters; in colours, each line is two rows of pixels.
std::string DrawLine(const HeatMap& map, const Shares& shares, int64_t line, Colors colors) {
  std::string text;
  if (colors == Colors::kNone) {
    for (int64_t column = 0; column < map.pixels.columns; ++column) {
      text += ShadeOf(shares.At(line, column));
    }
    return text;
  }
  const int64_t upper = 2 * line;
  const bool has_lower = upper + 1 < map.pixels.rows;
  std::string selected;
  for (int64_t column = 0; column < map.pixels.columns; ++column) {
    std::string wanted = Select(38, shares.InkAt(upper, column, 1), colors);
    if (has_lower) {
      wanted += Select(48, shares.InkAt(upper + 1, column, 1), colors);
    }
    if (wanted != selected) text += wanted;
    selected = std::move(wanted);
    text += kUpperHalf;
  }
  return absl::StrCat(text, kReset);
}

int LabelWidth(const HeatMap& map) {
  size_t width = 0;
  for (const int64_t row : map.rows) {
    width = std::max(width, absl::StrCat(row).size());
  }
  return static_cast<int>(width);
}

// Returns positions of columns, each at the beginning of its column.
std::string ColumnLabels(const HeatMap& map) {
  const auto count = static_cast<int64_t>(map.columns.size());
  std::string text;
  const int64_t step = count < map.pixels.columns ? 1 : kCharactersPerLabel;
  int64_t last = -1;
  for (int64_t pixel = 0; pixel < map.pixels.columns; ++pixel) {
    const int64_t column = Spread(pixel, map.pixels.columns, count);
    const bool begins = std::exchange(last, column) != column;
    const auto written = static_cast<int64_t>(text.size());
    if (!begins || pixel % step != 0) continue;
    const std::string label = absl::StrCat(map.columns[static_cast<size_t>(column)]);
    const auto end = pixel + static_cast<int64_t>(label.size());
    if (written > 0 && (pixel < written + kLabelGap || end > map.pixels.columns)) {
      continue;
    }
    text.resize(static_cast<size_t>(pixel), ' ');
    absl::StrAppend(&text, label);
  }
  return text;
}

std::string Bar(Colors colors) {
  std::string text;
  for (int64_t i = 0; i < kBarLength; ++i) {
    const double share = static_cast<double>(i) / (kBarLength - 1);
    if (colors == Colors::kNone) {
      text += ShadeOf(share);
    } else {
      absl::StrAppend(&text, Select(48, InkOf(share), colors), " ");
    }
  }
  return colors == Colors::kNone ? text : absl::StrCat(text, kReset);
}

// Returns stripes as in the picture, for the legend.
std::string Stripes(Colors colors) {
  if (colors == Colors::kNone) return std::string(2, kNoShade);
  return absl::StrCat(Select(38, kDarkStripe, colors), Select(48, kLightStripe, colors), kUpperHalf,
                      Select(38, kLightStripe, colors), Select(48, kDarkStripe, colors), kUpperHalf,
                      kReset);
}

}  // namespace

Canvas CanvasOf(const Screen& screen, int label_width) {
  const bool halves = screen.colors != Colors::kNone;
  const int64_t lines = std::max(8, screen.lines - kLinesAround);
  return {.most = {.rows = halves ? 2 * lines : lines,
                   .columns = std::max(16, screen.columns - label_width - 1)},
          .pixel_height = halves ? 1 : 2,
          .enlarged_to = 64};
}

int64_t Spread(int64_t index, int64_t count, int64_t size) {
  // index * size may overflow.
  return size / count * index + size % count * index / count;
}

Size Fit(Size matrix, const Canvas& canvas, bool square) {
  // Rows are measured in widths of a pixel.
  const Size room = {.rows = canvas.most.rows * canvas.pixel_height,
                     .columns = canvas.most.columns};
  const auto enlarged = [&](int64_t length, int64_t most) {
    return std::max<int64_t>(1, std::min(most, canvas.enlarged_to) / length);
  };
  int64_t rows;
  int64_t columns;
  if (!square) {
    rows = std::min(room.rows, matrix.rows * enlarged(matrix.rows, room.rows));
    columns = std::min(room.columns, matrix.columns * enlarged(matrix.columns, room.columns));
  } else if (matrix.rows <= room.rows && matrix.columns <= room.columns) {
    const int64_t times =
        std::min(enlarged(matrix.rows, room.rows), enlarged(matrix.columns, room.columns));
    rows = matrix.rows * times;
    columns = matrix.columns * times;
  } else {
    const double scale =
        std::min(static_cast<double>(room.rows) / static_cast<double>(matrix.rows),
                 static_cast<double>(room.columns) / static_cast<double>(matrix.columns));
    const auto scaled = [&](int64_t length, int64_t most) {
      const double pixels = scale * static_cast<double>(length);
      return std::clamp<int64_t>(std::llround(pixels), 1, most);
    };
    rows = scaled(matrix.rows, room.rows);
    columns = scaled(matrix.columns, room.columns);
  }
  return {.rows = (rows + canvas.pixel_height - 1) / canvas.pixel_height, .columns = columns};
}

Color ColorOf(double share) {
  const double place = share * (kColors.size() - 1);
  const auto below = std::min(static_cast<size_t>(place), kColors.size() - 2);
  const double rest = place - static_cast<double>(below);
  const auto mixed = [&](uint8_t from, uint8_t to) {
    return static_cast<uint8_t>(std::lround(from + rest * (to - from)));
  };
  const Color& from = kColors[below];
  const Color& to = kColors[below + 1];
  return {mixed(from.red, to.red), mixed(from.green, to.green), mixed(from.blue, to.blue)};
}

std::string DrawText(const HeatMap& map, const Screen& screen) {
  const Shares shares(map);
  const int width = LabelWidth(map);
  const bool halves = screen.colors != Colors::kNone;
  const int64_t lines = halves ? (map.pixels.rows + 1) / 2 : map.pixels.rows;
  std::string text = absl::StrCat(map.title, "\n");
  for (int64_t line = 0; line < lines; ++line) {
    const int64_t pixel = halves ? 2 * line : line;
    const int64_t row = Spread(pixel, map.pixels.rows, static_cast<int64_t>(map.rows.size()));
    const std::string label =
        line % kLinesPerLabel == 0 ? absl::StrCat(map.rows[static_cast<size_t>(row)]) : "";
    absl::StrAppendFormat(&text, "%*s %s\n", width, label,
                          DrawLine(map, shares, line, screen.colors));
  }
  absl::StrAppendFormat(&text, "%*s %s\n", width, "", ColumnLabels(map));
  const Bounds bounds = BoundsOf(map);
  std::string legend;
  if (!bounds.empty()) {
    legend = absl::StrFormat("%.4g %s %.4g", bounds.least, Bar(screen.colors), bounds.greatest);
  }
  if (!bounds.all_finite) {
    absl::StrAppend(&legend, legend.empty() ? "" : "   ", Stripes(screen.colors), " ",
                    map.left_out);
  }
  absl::StrAppendFormat(&text, "%*s %s\n", width, "", legend);
  return text;
}

std::string LegendText(const HeatMap& map) {
  const Bounds bounds = BoundsOf(map);
  const std::string stripes = bounds.all_finite ? "" : absl::StrCat("striped: ", map.left_out);
  if (bounds.empty()) return stripes;
  return absl::StrFormat("dark %.4g, light %.4g%s%s", bounds.least, bounds.greatest,
                         stripes.empty() ? "" : ", ", stripes);
}

absl::Status CheckPngName(const std::string& path) {
  if (absl::EndsWith(path, ".png")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--png: got ", path, ", want a name ending in .png"));
}

absl::Status WritePng(const HeatMap& map, const std::string& path) {
  const Shares shares(map);
  std::vector<Color> pixels;
  pixels.reserve(static_cast<size_t>(map.pixels.rows * map.pixels.columns));
  for (int64_t row = 0; row < map.pixels.rows; ++row) {
    for (int64_t column = 0; column < map.pixels.columns; ++column) {
      pixels.push_back(shares.InkAt(row, column, kPixelsOfStripe).color);
    }
  }
  static_assert(sizeof(Color) == 3);
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.format = PNG_FORMAT_RGB;
  image.width = static_cast<png_uint_32>(map.pixels.columns);
  image.height = static_cast<png_uint_32>(map.pixels.rows);
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string bytes(size, '\0');
  if (png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.data(), 0, nullptr) == 0) {
    return absl::InternalError(absl::StrCat(path, ": cannot be made: ", image.message));
  }
  bytes.resize(size);
  return WriteFileAtomically(path, {bytes});
}

}  // namespace attnbias
