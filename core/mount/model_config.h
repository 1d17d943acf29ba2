// SPDX-License-Identifier: Apache-2.0
// A checkpoint's config.json, as transformers understands it.
#ifndef ATTNBIAS_CORE_MOUNT_MODEL_CONFIG_H_
#define ATTNBIAS_CORE_MOUNT_MODEL_CONFIG_H_

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace attnbias {

// A field that is absent or null is what transformers takes without it; one of
// another type, too, and then status() names the first that was.
class ModelConfig {
 public:
  static constexpr char kFile[] = "config.json";

  explicit ModelConfig(nlohmann::json content) : content_(std::move(content)) {}

  std::string String(const char* field, std::string_view otherwise);
  int64_t Integer(const char* field, int64_t otherwise);
  // The integer at `index` of a list; all of them may be left out at once.
  int64_t Element(const char* field, size_t index, int64_t otherwise);
  // Height and width, positive: a list of the two, or one integer for both.
  std::array<int64_t, 2> Sides(const char* field, int64_t otherwise);

  // Makes status() say of `field` what it is and should be, if it is the first.
  void Refuse(const char* field, std::string_view got, std::string_view want);

  const absl::Status& status() const { return status_; }

 private:
  // Null where it is absent.
  const nlohmann::json& Find(const char* field) const;

  const nlohmann::json content_;
  absl::Status status_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_MOUNT_MODEL_CONFIG_H_
