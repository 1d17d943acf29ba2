// SPDX-License-Identifier: Apache-2.0
// The bearer token that says who calls.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "attnbias/client.h"

namespace attnbias {

// For any thread.
class BearerToken {
 public:
  // What the options, or without them the environment, say; null: no token.
  // INVALID_ARGUMENT names the option or the variable.
  static absl::StatusOr<std::unique_ptr<BearerToken>> From(
      const ClientOptions& options);

  // Of the option or the variable.
  const std::string& name() const { return name_; }

  // What a call carries as "authorization"; of a file what it holds now, or
  // held when it last had a token.
  std::string Authorization();

 private:
  explicit BearerToken(std::string name) : name_(std::move(name)) {}

  absl::StatusOr<std::string> ReadFile() const;

  const std::string name_;
  std::string path_;  // "" where the token itself was given
  std::mutex mutex_;
  std::string token_;
};

}  // namespace attnbias
