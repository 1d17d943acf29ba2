// SPDX-License-Identifier: Apache-2.0
// The numbers of a tensor that a picture shows: which to ask for, and the heat
// map of those that came.
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

// The matrix that is drawn: queries and keys of a head, positions and columns
// of a table, or relative positions and columns of vectors.
struct Matrix {
  int part;
  Size size;
  // Whether rows and columns count the same.
  bool square;
  // Unset: there is no head axis.
  std::optional<int64_t> head;
  // Characters of the longest position of a row.
  int label_width;
};

// A tensor's matrix, from what DescribeTensor says of it without a mask.
// INVALID_ARGUMENT names --head or --part.
absl::StatusOr<Matrix> MatrixOf(const v1::TensorHeader& whole,
                                std::optional<int64_t> head,
                                const std::string& part);

// Requests for the matrix, or for so many of its rows and columns, spread
// evenly. The first that a server takes is the one to use: not every encoding
// takes lists of positions.
std::vector<v1::TensorSpec> RequestsFor(const v1::TensorSpec& spec,
                                        const v1::TensorHeader& whole,
                                        const Matrix& matrix, Size shown);

// The picture of a request's answer, by the encoding's name. DATA_LOSS if its
// header contradicts itself.
absl::StatusOr<HeatMap> HeatMapOf(const std::string& encoding,
                                  const Tensor& tensor,
                                  const v1::TensorHeader& whole,
                                  const Matrix& matrix, Size pixels);

}  // namespace attnbias
