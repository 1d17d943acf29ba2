// SPDX-License-Identifier: Apache-2.0
// Sinusoids of distances: the logits of Transformer-XL and similar models.
#include <algorithm>
#include <utility>

#include "core/base/errors.h"
#include "core/encoding/common/by_distance.h"
#include "core/encoding/encoding.h"
#include "core/logits/plan.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

// Returns a range that contains the relative positions of all visible pairs.
Range HullOf(const v1::LogitsSpec& request, int64_t query_offset) {
  Range hull = {-(query_offset + request.query_length() - 1), request.key_length() - query_offset};
  if (request.direction() == v1::DIRECTION_LEFT_TO_RIGHT) {
    hull.end = std::min<int64_t>(hull.end, 1);
  } else if (request.direction() == v1::DIRECTION_RIGHT_TO_LEFT) {
    hull.begin = std::max<int64_t>(hull.begin, 0);
  }
  return hull;
}

absl::Status CheckSinusoid(const v1::SinusoidalDistances& term, const v1::LogitsSpec& request) {
  if (!term.sinusoidal().axes().empty()) {
    return Invalid("sinusoidal_distances.sinusoidal.axes: got ", term.sinusoidal().axes_size(),
                   " elements, want none: a distance has one axis");
  }
  if (term.sinusoidal().has_frequency_matrix()) {
    return Invalid(
        "sinusoidal_distances.sinusoidal.frequency_matrix: got a table, want none: set "
        "ladder.frequencies instead");
  }
  if (term.has_projection() || term.sinusoidal().dim() == request.head_dim()) {
    return absl::OkStatus();
  }
  return Invalid("sinusoidal_distances.sinusoidal.dim: got ", term.sinusoidal().dim(),
                 ", want head_dim (", request.head_dim(), ") without a projection");
}

// Vectors are in ascending order of key - query, while a sinusoid's position is query - key. If
// both directions share vectors, they are in ascending order of distance, like the sinusoid.
absl::StatusOr<LogitsTerm> DescribeSinusoidalDistances(const v1::SinusoidalDistances& term,
                                                       const Tables& tables,
                                                       const v1::LogitsSpec& request,
                                                       const int64_t& query_offset) {
  v1::TensorSpec spec;
  *spec.mutable_sinusoidal() = term.sinusoidal();
  absl::StatusOr<EncodingPtr> sinusoid = MakeEncoding(tables, spec);
  if (!sinusoid.ok()) {
    return Invalid("sinusoidal_distances.", sinusoid.status().message());
  }
  ATTNBIAS_RETURN_IF_ERROR(CheckSinusoid(term, request));
  TermComponent component = {.encoding = *std::move(sinusoid),
                             .descends = !term.symmetric(),
                             .roundings = term.sinusoidal().dim() + 2};
  ATTNBIAS_RETURN_IF_ERROR(Project("sinusoidal_distances.projection", tables.Get(term.projection()),
                                   request, &component));
  RelativeVectors vectors = {.distinct = kRelativePositions, .symmetric = term.symmetric()};
  if (term.has_clamp_len()) {
    vectors.distinct = {-term.clamp_len(), term.clamp_len() + 1};
  }
  if (Range hull = HullOf(request, query_offset); hull.size() > 0) {
    hull = {vectors.Nearest(hull.begin), vectors.Nearest(hull.end - 1) + 1};
    const Range distances = DistancesIn(hull);
    if (distances.end - 1 > kMaxPosition) {
      return Invalid("query_offset: got ", query_offset,
                     ", which makes distances exceed 2^40; want a smaller offset, or a "
                     "clamp_len");
    }
    const Range used = term.symmetric() ? distances : hull;
    vectors.first = used.begin;
    component.first = term.symmetric() ? used.begin : -used.begin;
    component.count = used.size();
  }
  component.segments = vectors.For(request, query_offset);
  return LogitsTerm{{std::move(component)}};
}

const TermRegistration kSinusoidalDistances(v1::LogitsSpec::kSinusoidalDistancesFieldNumber,
                                            &DescribeSinusoidalDistances);

}  // namespace
}  // namespace attnbias
