// SPDX-License-Identifier: Apache-2.0
#include "client/cli/png.h"

#include <png.h>

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/file_io.h"

namespace attnbias {

absl::Status CheckPngName(const std::string& path) {
  if (absl::EndsWith(path, ".png")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--png: got ", path, ", want a name ending in .png"));
}

absl::Status WritePng(const HeatMap& map, const std::string& path) {
  const std::vector<Color> pixels = DrawPixels(map);
  static_assert(sizeof(Color) == 3);
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.format = PNG_FORMAT_RGB;
  image.width = static_cast<png_uint_32>(map.pixels.columns);
  image.height = static_cast<png_uint_32>(map.pixels.rows);
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string bytes(size, '\0');
  if (png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.data(),
                                0, nullptr) == 0) {
    return absl::InternalError(
        absl::StrCat(path, ": cannot be made: ", image.message));
  }
  bytes.resize(size);
  return WriteFileAtomically(path, {bytes});
}

}  // namespace attnbias
