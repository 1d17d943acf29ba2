// SPDX-License-Identifier: Apache-2.0
// Matrices as text, as colors and as PNG files.
#include "client/cli/heat_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/unit/support/fresh_folder.h"

namespace attnbias::heat_map_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr Screen kColorful = {.columns = 80, .lines = 24, .colors = Colors::k24Bit};

double Lightness(Color color) {
  return 0.2126 * color.red + 0.7152 * color.green + 0.0722 * color.blue;
}

HeatMap Small() {
  return {.title = "small",
          .rows = {7, 8},
          .columns = {0, 1, 2},
          .numbers = {0, 1, NAN, 9, 4.5, -INFINITY},
          .left_out = "masked"};
}

TEST(ColorOf, LightnessRisesWithTheNumber) {
  EXPECT_EQ(ColorOf(0), (Color{68, 1, 84}));
  EXPECT_EQ(ColorOf(1), (Color{253, 231, 37}));
  for (int i = 1; i <= 100; ++i) {
    EXPECT_GT(Lightness(ColorOf(i / 100.0)), Lightness(ColorOf((i - 1) / 100.0))) << i;
  }
}

TEST(Spread, IsEvenAndDoesNotOverflow) {
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(Spread(i, 5, 12), i * 12 / 5);
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(Spread(i, 12, 5), i * 5 / 12);
  EXPECT_EQ(Spread(1023, 1024, int64_t{1} << 60), 1023 * (int64_t{1} << 50));
}

TEST(Fit, KeepsProportionsOfPairs) {
  const Canvas canvas = {.most = {.rows = 40, .columns = 80}, .pixel_height = 1, .enlarged_to = 64};
  EXPECT_EQ(Fit({.rows = 4096, .columns = 4096}, canvas, true), (Size{.rows = 40, .columns = 40}));
  EXPECT_EQ(Fit({.rows = 100, .columns = 400}, canvas, true), (Size{.rows = 20, .columns = 80}));
  EXPECT_EQ(Fit({.rows = 1, .columns = 4096}, canvas, true), (Size{.rows = 1, .columns = 80}));
  EXPECT_EQ(Fit({.rows = int64_t{1} << 40, .columns = 1}, canvas, true),
            (Size{.rows = 40, .columns = 1}));
  // Small matrices are enlarged, but not to fill the screen.
  EXPECT_EQ(Fit({.rows = 9, .columns = 9}, canvas, true), (Size{.rows = 36, .columns = 36}));
  EXPECT_EQ(Fit({.rows = 1, .columns = 10}, canvas, true), (Size{.rows = 6, .columns = 60}));
}

TEST(Fit, TableFillsTheCanvas) {
  const Canvas canvas = {.most = {.rows = 40, .columns = 80}, .pixel_height = 1, .enlarged_to = 64};
  EXPECT_EQ(Fit({.rows = 5000, .columns = 16}, canvas, false), (Size{.rows = 40, .columns = 64}));
}

TEST(Fit, AccountsForTallCharacters) {
  const Canvas canvas = {.most = {.rows = 40, .columns = 80}, .pixel_height = 2, .enlarged_to = 64};
  EXPECT_EQ(Fit({.rows = 4096, .columns = 4096}, canvas, true), (Size{.rows = 40, .columns = 80}));
  EXPECT_EQ(Fit({.rows = 1, .columns = 3}, canvas, true), (Size{.rows = 11, .columns = 63}));
}

TEST(CanvasOf, LeavesRoomForLabelsAndLegend) {
  const Canvas plain = CanvasOf({.columns = 100, .lines = 30}, 4);
  EXPECT_EQ(plain.most, (Size{.rows = 26, .columns = 95}));
  EXPECT_EQ(plain.pixel_height, 2);
  const Canvas colorful = CanvasOf(kColorful, 4);
  EXPECT_EQ(colorful.most, (Size{.rows = 40, .columns = 75}));
  EXPECT_EQ(colorful.pixel_height, 1);
  EXPECT_EQ(CanvasOf({.columns = 3, .lines = 2}, 9).most, (Size{.rows = 8, .columns = 16}));
}

TEST(DrawText, UsesShadesWithoutColors) {
  EXPECT_EQ(DrawText(Small(), Screen()),
            "small\n"
            "7  ./\n"
            "  @+/\n"
            "  0\n"
            "  blank 0, @ 9, /: masked\n");
}

TEST(DrawText, DrawsTwoRowsPerLineInColor) {
  const std::string text = DrawText(Small(), kColorful);
  // The first column has 0 above 9.
  EXPECT_THAT(text, HasSubstr("small\n7 \033[38;2;68;1;84m"
                              "\033[48;2;253;231;37m\u2580"));
  // The last column is striped.
  EXPECT_THAT(text, HasSubstr("\033[38;2;108;108;108m"
                              "\033[48;2;148;148;148m\u2580\033[0m\n  0\n"));
  EXPECT_TRUE(absl::EndsWith(text, "\n  dark 0, light 9, striped: masked\n"));
}

TEST(DrawText, OddLastRowHasEmptyLowerHalf) {
  HeatMap map = Small();
  map.rows = {7};
  map.numbers.resize(3);
  EXPECT_THAT(DrawText(map, kColorful),
              HasSubstr("7 \033[38;2;68;1;84m\u2580\033[38;2;253;231;37m\u2580"
                        "\033[38;2;108;108;108m\u2580\033[0m\n"));
}

TEST(DrawText, Uses256ColorsFromDarkToLight) {
  Screen screen = kColorful;
  screen.colors = Colors::k256;
  HeatMap map = Small();
  EXPECT_THAT(DrawText(map, screen), HasSubstr("7 \033[38;5;53m\033[48;5;220m\u2580"));
  EXPECT_THAT(DrawText(map, screen), HasSubstr("\033[38;5;242m\033[48;5;246m\u2580"));
  EXPECT_THAT(DrawText(map, screen), Not(HasSubstr(";2;")));
  // Levels of the 6 x 6 x 6 colors, which start at index 16.
  constexpr uint8_t kLevels[] = {0, 95, 135, 175, 215, 255};
  map.rows = {7};
  double last = 0;
  for (int i = 0; i <= 10; ++i) {
    map.numbers = {i / 10.0, 0, 1};
    const std::string text = DrawText(map, screen);
    const size_t at = text.find(";5;") + 3;
    const int code = std::atoi(text.c_str() + at) - 16;
    const double lightness =
        Lightness({kLevels[code / 36], kLevels[code / 6 % 6], kLevels[code % 6]});
    EXPECT_GT(lightness, last) << i;
    last = lightness;
  }
}

TEST(DrawText, LabelsEveryEighthLineAndSixteenthColumn) {
  HeatMap map = {.title = "", .rows = {}, .columns = {}, .numbers = {}, .left_out = ""};
  for (int64_t row = 0; row < 9; ++row) map.rows.push_back(row / 3 - 1);
  for (int64_t column = 0; column < 36; ++column) map.columns.push_back(10 * (column / 12 + 1));
  for (size_t i = 0; i < 9 * 36; ++i) map.numbers.push_back(static_cast<double>(i / 36));
  const std::string text = DrawText(map, Screen());
  EXPECT_THAT(text, HasSubstr("\n-1                                     \n   ...."));
  EXPECT_THAT(text, HasSubstr("\n 1 @@@@"));
  EXPECT_THAT(text, HasSubstr("\n   10              20              30\n"));
}

TEST(DrawText, ColumnLabelsDoNotOverlap) {
  HeatMap map = {.title = "",
                 .rows = {0},
                 .columns = std::vector<int64_t>(50),
                 .numbers = std::vector<double>(50),
                 .left_out = ""};
  for (size_t i = 0; i < 50; ++i) {
    map.columns[i] = static_cast<int64_t>(1000 + i);
  }
  // At 48 there is room for only two more digits.
  EXPECT_THAT(DrawText(map, Screen()), HasSubstr("\n  1000            1016            1032\n"));
}

TEST(DrawText, DistinguishesEqualFromMaskedNumbers) {
  HeatMap map = Small();
  map.numbers.assign(6, 2);
  EXPECT_THAT(DrawText(map, Screen()), HasSubstr("7    \n"));
  EXPECT_THAT(DrawText(map, Screen()), Not(HasSubstr("masked")));
  map.numbers.assign(6, -INFINITY);
  EXPECT_THAT(DrawText(map, Screen()), HasSubstr("7 ///\n"));
  EXPECT_TRUE(absl::EndsWith(DrawText(map, Screen()), "\n  /: masked\n"));
  EXPECT_EQ(LegendText(map, Colors::k24Bit), "striped: masked");
}

TEST(DrawText, WidestRangeDoesNotOverflow) {
  HeatMap map = Small();
  map.numbers = {-1.7e308, 0, 1.7e308, 0, 0, 0};
  EXPECT_THAT(DrawText(map, Screen()), HasSubstr("7  +@\n"));
}

TEST(ColorsOf, FollowsTheEnvironment) {
  using Environment = std::map<std::string, std::string>;
  const auto colors = [](const Environment& environment) {
    return ColorsOf([&](const char* name) {
      const auto found = environment.find(name);
      return found == environment.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_EQ(colors({{"TERM", "xterm-256color"}}), Colors::k256);
  EXPECT_EQ(colors({{"TERM", "xterm"}, {"COLORTERM", "truecolor"}}), Colors::k24Bit);
  EXPECT_EQ(colors({{"TERM", "xterm"}, {"COLORTERM", "24bit"}}), Colors::k24Bit);
  EXPECT_EQ(colors({{"TERM", "xterm"}, {"NO_COLOR", "1"}}), Colors::kNone);
  EXPECT_EQ(colors({{"TERM", "xterm"}, {"NO_COLOR", ""}}), Colors::k256);
  EXPECT_EQ(colors({{"TERM", "dumb"}, {"COLORTERM", "24bit"}}), Colors::kNone);
  EXPECT_EQ(colors({}), Colors::kNone);
}

// Read back by libpng.
TEST(WritePng, HoldsThePixels) {
  const HeatMap small = Small();
  HeatMap map = {.title = "",
                 .rows = std::vector<int64_t>(8),
                 .columns = std::vector<int64_t>(12),
                 .numbers = {},
                 .left_out = ""};
  for (size_t i = 0; i < 96; ++i) map.numbers.push_back(small.numbers[i / 48 * 3 + i % 12 / 4]);
  const std::string path = FreshFolder() / "map.png";
  ASSERT_TRUE(WritePng(map, path).ok());
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  ASSERT_TRUE(png_image_begin_read_from_file(&image, path.c_str()));
  EXPECT_EQ(image.width, 12u);
  EXPECT_EQ(image.height, 8u);
  EXPECT_EQ(image.format, unsigned{PNG_FORMAT_RGB});
  std::vector<Color> pixels(96);
  ASSERT_TRUE(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr));
  for (size_t row = 0; row < 8; ++row) {
    for (size_t column = 0; column < 12; ++column) {
      const double number = map.numbers[row * 12 + column];
      const auto stripe = static_cast<uint8_t>((row + column) / 4 % 2 == 0 ? 108 : 148);
      const Color want =
          std::isfinite(number) ? ColorOf(number / 9) : Color{stripe, stripe, stripe};
      EXPECT_EQ(pixels[row * 12 + column], want) << row << ", " << column;
    }
  }
}

TEST(WritePng, NamesPathInErrors) {
  EXPECT_EQ(WritePng(Small(), "/no/such/folder/a.png").message(),
            "/no/such/folder/a.png: cannot create: No such file or directory");
}

}  // namespace
}  // namespace attnbias::heat_map_test
