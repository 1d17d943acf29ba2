// SPDX-License-Identifier: Apache-2.0
// Pixels as a PNG file.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/cli/heat_map.h"

namespace attnbias {

// INVALID_ARGUMENT if a picture cannot go to a file of this name.
absl::Status CheckPngName(const std::string& path);

// The picture without title and legend; all or nothing.
absl::Status WritePng(const HeatMap& map, const std::string& path);

}  // namespace attnbias
