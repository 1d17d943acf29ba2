// SPDX-License-Identifier: Apache-2.0
#include "attnbias/tensor.h"

namespace attnbias {

int64_t ElementSize(v1::DataType type) {
  switch (type) {
    case v1::DATA_TYPE_F64:
      return 8;
    case v1::DATA_TYPE_F32:
    case v1::DATA_TYPE_I32:
      return 4;
    case v1::DATA_TYPE_F16:
    case v1::DATA_TYPE_BF16:
      return 2;
    default:
      return 0;
  }
}

}  // namespace attnbias
