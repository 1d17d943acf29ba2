// SPDX-License-Identifier: Apache-2.0
// The command line's words for an extent and an output, and the TensorSpec they
// stand for.
#ifndef ATTNBIAS_CLIENT_CLI_TENSOR_OPTIONS_H_
#define ATTNBIAS_CLIENT_CLI_TENSOR_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attnbias/v1/service.pb.h"

namespace attnbias {

// As typed. Empty, absent or false: not given.
struct TensorOptions {
  std::string encoding;
  std::vector<std::string> fields;

  std::string positions;
  // A list "3,-1,3" for each axis.
  std::vector<std::string> position_ids;

  std::string queries;
  std::string keys;
  std::string heads;
  std::string align;
  std::optional<int64_t> query_offset;
  std::vector<int64_t> query_position_ids;
  std::vector<int64_t> key_position_ids;

  std::string form;
  std::string data_type;
  std::string values;
  std::optional<double> scale;

  bool causal = false;
  std::optional<int64_t> window_left;
  std::optional<int64_t> window_right;
  std::string fill;
};

// INVALID_ARGUMENT names the option or field, what came and what was wanted.
// What only the server can judge is left to it.
absl::StatusOr<v1::TensorSpec> BuildSpec(const TensorOptions& options);

// Whether the extent is what the encoding takes, by the contract, and whole.
// INVALID_ARGUMENT names the option.
absl::Status CheckExtent(const TensorOptions& options);

}  // namespace attnbias

#endif  // ATTNBIAS_CLIENT_CLI_TENSOR_OPTIONS_H_
