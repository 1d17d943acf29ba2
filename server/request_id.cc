// SPDX-License-Identifier: Apache-2.0
#include "server/request_id.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <random>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace attnbias {
namespace {

constexpr size_t kMostBytes = 128;

bool IsSane(std::string_view id) {
  constexpr std::string_view kMarks = "-_.:/+=";
  return !id.empty() && id.size() <= kMostBytes &&
         absl::c_all_of(id, [kMarks](char c) {
           return absl::ascii_isalnum(c) ||
                  kMarks.find(c) != std::string_view::npos;
         });
}

std::string RandomPrefix() {
  std::random_device random;
  return absl::StrCat(absl::Hex(random(), absl::kZeroPad8),
                      absl::Hex(random(), absl::kZeroPad8), "-");
}

}  // namespace

std::string RequestId(std::string_view given) {
  if (IsSane(given)) return std::string(given);
  static const std::string& of_process = *new std::string(RandomPrefix());
  static std::atomic<uint64_t> next{1};
  return absl::StrCat(of_process, next++);
}

}  // namespace attnbias
