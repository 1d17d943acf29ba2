// SPDX-License-Identifier: Apache-2.0
// Samples a tensor for a picture: builds the requests, and a heat map from the response.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attnbias/tensor.h"
#include "attnbias/v1/service.pb.h"
#include "client/cli/heat_map.h"

namespace attnbias {

// The matrix to draw: the queries and keys of a head, the positions and columns of a table, or the
// relative positions and columns of vectors.
struct Matrix {
  int part;
  Size size;
  // True if rows and columns have the same scale.
  bool square;
  // Unset if there is no head axis.
  std::optional<int64_t> head;
  // Width of a row label, in characters.
  int label_width;
};

// Returns the matrix to draw for a tensor described by DescribeTensor without a mask.
// INVALID_ARGUMENT names --head or --part.
absl::StatusOr<Matrix> MatrixOf(const v1::TensorHeader& whole, std::optional<int64_t> head,
                                const std::string& part);

// Returns requests for the matrix, or for `shown` evenly spread rows and columns. The caller uses
// the first request that the server accepts, since some encodings accept no position lists.
std::vector<v1::TensorSpec> RequestsFor(const v1::TensorSpec& spec, const v1::TensorHeader& whole,
                                        const Matrix& matrix, Size shown);

// Returns a picture of the response, titled with the encoding's name. DATA_LOSS if the header
// contradicts itself.
absl::StatusOr<HeatMap> HeatMapOf(const std::string& encoding, const Tensor& tensor,
                                  const v1::TensorHeader& whole, const Matrix& matrix, Size pixels);

}  // namespace attnbias
