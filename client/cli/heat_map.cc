// SPDX-License-Identifier: Apache-2.0
#include "client/cli/heat_map.h"

#include <png.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/cli/file_io.h"

namespace attnbias {
namespace {

// Nine colors from viridis, whose lightness rises evenly, so that steps look equal to color-blind
// readers and in print. The colors do not distinguish signs, since most biases have only one. The
// legend shows the signs.
constexpr std::array<Color, 9> kColors = {{{68, 1, 84},
                                           {71, 44, 122},
                                           {59, 81, 139},
                                           {44, 113, 142},
                                           {33, 144, 141},
                                           {39, 173, 129},
                                           {92, 200, 99},
                                           {170, 220, 50},
                                           {253, 231, 37}}};
// Similar colors among xterm's 256, from dark to light. These are not always the nearest ones,
// whose lightness would not rise evenly.
constexpr std::array<int, 11> kCodes = {53, 54, 24, 30, 36, 42, 78, 113, 149, 184, 220};

struct Ink {
  Color color;
  // Index among the 256 colors.
  int code;
};

// Colors of the stripes that are drawn in place of non-finite values.
constexpr Ink kDarkStripe = {{108, 108, 108}, 242};
constexpr Ink kLightStripe = {{148, 148, 148}, 246};
constexpr size_t kPixelsOfStripe = 4;  // used if pixels are small

// Shades, from the smallest value to the largest.
constexpr absl::string_view kShades = " .:-=+*#%@";
constexpr char kNoShade = '/';

constexpr char kUpperHalf[] = "\u2580";
constexpr char kReset[] = "\033[0m";
// Lines from one row label to the next.
constexpr size_t kLinesPerLabel = 8;
// Characters from one column label to the next; more than any position takes.
constexpr size_t kCharactersPerLabel = 16;
// Lines taken by the title, column labels, legend and the prompt that follows.
constexpr int kLinesAround = 4;

// Smallest and largest finite values.
struct Bounds {
  explicit Bounds(const HeatMap& map) {
    for (const double number : map.numbers) {
      if (!std::isfinite(number)) {
        all_finite = false;
        continue;
      }
      least = std::min(least, number);
      greatest = std::max(greatest, number);
    }
  }

  double least = INFINITY;
  double greatest = -INFINITY;
  bool all_finite = true;
};

// Computes where each pixel's value lies in the range, and the pixel's color.
class Shares {
 public:
  explicit Shares(const HeatMap& map) : map_(map), bounds_(map) {}

  // Returns the position of a pixel's value between the bounds, in [0, 1]; NaN if the value is not
  // finite. Halving keeps the difference between two doubles finite.
  double At(size_t row, size_t column) const {
    const double number = map_.numbers[row * map_.columns.size() + column];
    if (!std::isfinite(number)) return NAN;
    const double range = bounds_.greatest / 2 - bounds_.least / 2;
    return range == 0 ? 0 : (number / 2 - bounds_.least / 2) / range;
  }

  Ink InkAt(size_t row, size_t column, size_t stripe) const {
    const double share = At(row, column);
    if (std::isnan(share)) return (row + column) / stripe % 2 == 0 ? kDarkStripe : kLightStripe;
    const auto last = static_cast<double>(kCodes.size() - 1);
    return {ColorOf(share), kCodes[static_cast<size_t>(std::lround(share * last))]};
  }

 private:
  const HeatMap& map_;
  const Bounds bounds_;
};

// Selects the color of the character (38) or of the background (48).
std::string Select(int ground, const Ink& ink, Colors colors) {
  if (colors == Colors::k256) {
    return absl::StrCat("\033[", ground, ";5;", ink.code, "m");
  }
  return absl::StrCat("\033[", ground, ";2;", ink.color.red, ";", ink.color.green, ";",
                      ink.color.blue, "m");
}

// Draws a line of characters; in color, each line shows two rows of pixels.
std::string DrawLine(const HeatMap& map, const Shares& shares, size_t line, Colors colors) {
  std::string text;
  if (colors == Colors::kNone) {
    for (size_t column = 0; column < map.columns.size(); ++column) {
      const double share = shares.At(line, column);
      const auto last = static_cast<double>(kShades.size() - 1);
      text +=
          std::isnan(share) ? kNoShade : kShades[static_cast<size_t>(std::lround(share * last))];
    }
    return text;
  }
  const size_t upper = 2 * line;
  const bool has_lower = upper + 1 < map.rows.size();
  std::string selected;
  for (size_t column = 0; column < map.columns.size(); ++column) {
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

// Returns a line of column positions, each at its pixel.
std::string ColumnLabels(const HeatMap& map) {
  std::string text;
  for (size_t column = 0; column < map.columns.size(); column += kCharactersPerLabel) {
    const std::string label = absl::StrCat(map.columns[column]);
    if (column > 0 && column + label.size() > map.columns.size()) break;
    text.resize(column, ' ');
    text += label;
  }
  return text;
}

}  // namespace

Colors ColorsOf(const std::function<const char*(const char*)>& environment) {
  const auto value = [&](const char* name) {
    const char* text = environment(name);
    return text == nullptr ? absl::string_view() : absl::string_view(text);
  };
  const absl::string_view term = value("TERM");
  if (!value("NO_COLOR").empty() || term.empty() || term == "dumb") {
    return Colors::kNone;
  }
  const absl::string_view depth = value("COLORTERM");
  return depth == "truecolor" || depth == "24bit" ? Colors::k24Bit : Colors::k256;
}

Screen ScreenOf(int descriptor) {
  Screen screen;
  if (isatty(descriptor) != 1) return screen;
  screen.colors = ColorsOf([](const char* name) { return std::getenv(name); });
  winsize size;
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    screen.columns = size.ws_col;
    screen.lines = size.ws_row;
  }
  return screen;
}

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
  // Rows are measured in pixel widths.
  const Size room = {.rows = canvas.most.rows * canvas.pixel_height,
                     .columns = canvas.most.columns};
  // Returns the number of pixels per element: a fraction or an integer.
  const auto scale = [&](int64_t length, int64_t most) {
    return length > most ? static_cast<double>(most) / static_cast<double>(length)
                         : static_cast<double>(
                               std::max<int64_t>(1, std::min(most, canvas.enlarged_to) / length));
  };
  double down = scale(matrix.rows, room.rows);
  double across = scale(matrix.columns, room.columns);
  if (square) down = across = std::min(down, across);
  const auto pixels = [](int64_t length, double scale, int64_t most) {
    return std::clamp<int64_t>(std::llround(scale * static_cast<double>(length)), 1, most);
  };
  const int64_t rows = pixels(matrix.rows, down, room.rows);
  const int64_t columns = pixels(matrix.columns, across, room.columns);
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
  size_t label_width = 0;
  for (const int64_t row : map.rows) {
    label_width = std::max(label_width, absl::StrCat(row).size());
  }
  const int width = static_cast<int>(label_width);
  const bool halves = screen.colors != Colors::kNone;
  const size_t rows_per_line = halves ? 2 : 1;
  std::string text = absl::StrCat(map.title, "\n");
  for (size_t line = 0; line * rows_per_line < map.rows.size(); ++line) {
    const std::string label =
        line % kLinesPerLabel == 0 ? absl::StrCat(map.rows[line * rows_per_line]) : "";
    absl::StrAppendFormat(&text, "%*s %s\n", width, label,
                          DrawLine(map, shares, line, screen.colors));
  }
  absl::StrAppendFormat(&text, "%*s %s\n", width, "", ColumnLabels(map));
  absl::StrAppendFormat(&text, "%*s %s\n", width, "", LegendText(map, screen.colors));
  return text;
}

std::string LegendText(const HeatMap& map, Colors colors) {
  const bool shades = colors == Colors::kNone;
  const Bounds bounds(map);
  std::vector<std::string> parts;
  if (bounds.least <= bounds.greatest) {
    parts = {absl::StrFormat("%s %.4g", shades ? "blank" : "dark", bounds.least),
             absl::StrFormat("%s %.4g", shades ? "@" : "light", bounds.greatest)};
  }
  if (!bounds.all_finite) parts.push_back(absl::StrCat(shades ? "/: " : "striped: ", map.left_out));
  return absl::StrJoin(parts, ", ");
}

absl::Status WritePng(const HeatMap& map, const std::string& path) {
  const Shares shares(map);
  std::vector<Color> pixels;
  pixels.reserve(map.numbers.size());
  for (size_t row = 0; row < map.rows.size(); ++row) {
    for (size_t column = 0; column < map.columns.size(); ++column) {
      pixels.push_back(shares.InkAt(row, column, kPixelsOfStripe).color);
    }
  }
  static_assert(sizeof(Color) == 3);
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.format = PNG_FORMAT_RGB;
  image.width = static_cast<png_uint_32>(map.columns.size());
  image.height = static_cast<png_uint_32>(map.rows.size());
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string bytes(size, '\0');
  if (png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.data(), 0, nullptr) == 0) {
    return absl::InternalError(absl::StrCat(path, ": cannot be created: ", image.message));
  }
  bytes.resize(size);
  return WriteFileAtomically(path, {bytes});
}

}  // namespace attnbias
