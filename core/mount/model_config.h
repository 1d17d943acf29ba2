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
#include <vector>

#include "absl/status/status.h"

namespace attnbias {

// A field that is absent is what transformers takes without it: its default, or
// what another field says. status() names the first that was not of its kind.
class ModelConfig {
 public:
  static constexpr char kFile[] = "config.json";

  explicit ModelConfig(nlohmann::json content) : content_(std::move(content)) {}

  // By field; "=NAME" is the value of another field.
  void SetDefaults(nlohmann::json defaults) { defaults_ = std::move(defaults); }

  std::string String(const char* field, std::string_view otherwise);
  int64_t Integer(const char* field);
  // A positive integer.
  int64_t Size(const char* field);
  // The integer at `index` of a list.
  int64_t Element(const char* field, size_t index);
  // Height and width, positive: a list of the two, or one integer for both.
  std::array<int64_t, 2> Sides(const char* field);

  // What was read since the last call, for a message: "FIELD = VALUE, ...".
  std::string TakeReads();

  // Makes status() say of `field` what it is and should be, if it is the first.
  void Refuse(std::string_view field, std::string_view got,
              std::string_view want);

  const absl::Status& status() const { return status_; }

 private:
  struct Found {
    std::string name;             // of the field that says it
    const nlohmann::json& value;  // null where none does
  };

  Found Find(const char* field);

  const nlohmann::json content_;
  nlohmann::json defaults_;
  std::vector<std::string> reads_;
  absl::Status status_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_MOUNT_MODEL_CONFIG_H_
