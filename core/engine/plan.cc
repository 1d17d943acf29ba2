// SPDX-License-Identifier: Apache-2.0
#include "core/engine/plan.h"

namespace attnbias {

int64_t Plan::rows() const {
  const int64_t queries = form_ == Form::kDense ? window_.queries.size() : 1;
  return window_.heads.size() * queries;
}

int64_t Plan::ShiftOf(int64_t query_index) const {
  if (encoding_->structure() == Structure::kKeyRow) return -window_.key_anchor;
  return form_ == Form::kDense ? -window_.queries.At(query_index) : 0;
}

Range Plan::hull() const {
  const Range axis = axis_.hull();
  if (form_ == Form::kDense && encoding_->structure() == Structure::kToeplitz) {
    const Range queries = window_.queries.hull();
    return {axis.begin - (queries.end - 1), axis.end - queries.begin};
  }
  const int64_t shift = ShiftOf(0);
  return {axis.begin + shift, axis.end + shift};
}

}  // namespace attnbias
