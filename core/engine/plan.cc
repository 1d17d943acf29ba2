// SPDX-License-Identifier: Apache-2.0
#include "core/engine/plan.h"

namespace attnbias {

int64_t Plan::rows() const {
  const int64_t queries = form_ == Form::kDense ? window_.queries.size() : 1;
  return window_.heads.size() * queries;
}

bool Plan::has_shifted_rows() const {
  switch (encoding_->structure) {
    case Structure::kTable:
      return window_.axes.size() == 1;
    case Structure::kToeplitz:
    case Structure::kKeyRow:
      return true;
    case Structure::kBlockToeplitz2D:
      return form_ == Form::kBlockToeplitz2D;
    case Structure::kDense:
      return false;
  }
  return false;
}

int64_t Plan::ShiftOf(int64_t query_index) const {
  if (encoding_->structure == Structure::kKeyRow) return -window_.key_anchor;
  return form_ == Form::kDense ? -window_.queries.At(query_index) : 0;
}

Range Plan::hull() const {
  switch (encoding_->structure) {
    case Structure::kTable:
      break;
    case Structure::kToeplitz: {
      if (form_ != Form::kDense) break;
      const Range queries = window_.queries.hull();
      const Range keys = window_.keys.hull();
      return {keys.begin - (queries.end - 1), keys.end - queries.begin};
    }
    case Structure::kKeyRow: {
      const Range keys = window_.keys.hull();
      return {keys.begin - window_.key_anchor, keys.end - window_.key_anchor};
    }
    case Structure::kBlockToeplitz2D:
      return encoding_->domain;
    case Structure::kDense:
      return Union(window_.queries.hull(), window_.keys.hull());
  }
  Range hull = axis_.hull();
  for (const Positions& positions : window_.axes) {
    hull = Union(hull, positions.hull());
  }
  return hull;
}

}  // namespace attnbias
