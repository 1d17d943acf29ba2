// SPDX-License-Identifier: Apache-2.0
// Reads JSON from untrusted files, with bounds on size and depth.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace attnbias {

// Parses the text of the file at `path`. Returns INVALID_ARGUMENT, naming the file, if it is not
// JSON or is nested too deeply.
absl::StatusOr<nlohmann::json> ParseJson(const std::string& path, const std::string& text);

// Opens a file with RegularFile::Open and parses it. Returns INVALID_ARGUMENT, naming the file, if
// it is not JSON, too large or nested too deeply.
absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path,
                                            const std::string& folder = "");

// Same as ReadJsonFile, but reads the file as Python's json module does for transformers: NaN,
// Infinity and numbers beyond a double's range are values, represented here as strings with the
// same text; a byte order mark is an error.
absl::StatusOr<nlohmann::json> ReadPythonJsonFile(const std::string& path,
                                                  const std::string& folder);

// Returns the text of a value, or its beginning if it is long, for use in a message.
std::string Excerpt(const nlohmann::json& value);

}  // namespace attnbias
