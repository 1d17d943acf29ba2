// SPDX-License-Identifier: Apache-2.0
// A tensor as a file of the cache, which docs/cache.md describes.
#ifndef ATTNBIAS_CLIENT_CPP_SRC_TENSOR_FILE_H_
#define ATTNBIAS_CLIENT_CPP_SRC_TENSOR_FILE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "attnbias/tensor.h"
#include "client/cpp/src/mapped_file.h"

namespace attnbias {

// What the payload is read out of, mapped. DATA_LOSS where the file is not
// whole or not that of the fingerprint; the payload is read only if it is to be
// verified.
absl::StatusOr<Tensor> ReadTensorFile(std::shared_ptr<const MappedFile> file,
                                      const std::string& fingerprint,
                                      bool verify);

// What stands before the payload in the file of a tensor. The mask is what was
// asked for: the header lacks one that hides nothing.
absl::StatusOr<std::string> TensorFileHead(const Tensor& tensor,
                                           const v1::Mask& mask);

}  // namespace attnbias

#endif  // ATTNBIAS_CLIENT_CPP_SRC_TENSOR_FILE_H_
