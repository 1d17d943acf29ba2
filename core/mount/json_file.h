// SPDX-License-Identifier: Apache-2.0
// JSON files that somebody else wrote: read whole, and only where they are
// small and not nested beyond reason.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace attnbias {

// Of the text of the file `path`. INVALID_ARGUMENT, naming the file, for what
// is not JSON or too deep.
absl::StatusOr<nlohmann::json> ParseJson(const std::string& path,
                                         const std::string& text);

// Of a file that RegularFile::Open opens. INVALID_ARGUMENT, naming the file,
// for what is not JSON, too large or too deep.
absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path,
                                            const std::string& folder = "");

// As Python's json reads a file of transformers: NaN, Infinity and numbers that
// no double holds are values, here the strings of the same letters; a byte
// order mark is an error.
absl::StatusOr<nlohmann::json> ReadPythonJsonFile(const std::string& path,
                                                  const std::string& folder);

// A value for a message: as it is written, or its beginning.
std::string Excerpt(const nlohmann::json& value);

}  // namespace attnbias
