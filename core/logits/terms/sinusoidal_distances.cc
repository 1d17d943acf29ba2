// SPDX-License-Identifier: Apache-2.0
// Sinusoids of distances: the logits of Transformer-XL and its kin.
#include <algorithm>
#include <utility>

#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "core/encoding/common/by_distance.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/spec/limits.h"
#include "core/logits/spec/sequence_terms.h"
#include "core/logits/term.h"

namespace attnbias {
namespace {

// Relative positions between which visible pairs lie, perhaps a little wide.
Range HullOf(const LogitsSpec& request) {
  Range hull = {-(*request.query_offset + request.query_length - 1),
                request.key_length - *request.query_offset};
  if (request.direction == Direction::kLeftToRight) {
    hull.end = std::min<int64_t>(hull.end, 1);
  } else if (request.direction == Direction::kRightToLeft) {
    hull.begin = std::max<int64_t>(hull.begin, 0);
  }
  return hull;
}

absl::Status CheckSinusoid(const SinusoidalDistancesSpec& term,
                           const LogitsSpec& request) {
  if (!term.projection.has_value() && term.sinusoidal.dim != request.head_dim) {
    return Invalid("sinusoidal_distances.sinusoidal.dim: ",
                   Given(term.sinusoidal.dim), ", want head_dim (",
                   request.head_dim, ") where there is no projection");
  }
  if (term.sinusoidal.layout.is_given()) return absl::OkStatus();
  return Invalid(
      "sinusoidal_distances.sinusoidal.layout: not set, want CONCATENATED "
      "(Transformer-XL, XLNet), INTERLEAVED (Conformer) or TENSOR2TENSOR");
}

// Vectors ascend by relative position, key - query, while a sinusoid's position
// is query - key. Where both directions share vectors, they ascend by distance
// as the sinusoid does.
absl::StatusOr<LogitsTerm> DescribeSinusoidalDistances(
    const SinusoidalDistancesSpec& term, const LogitsSpec& request) {
  absl::StatusOr<EncodingPtr> sinusoid =
      MakeEncoding(term.sinusoidal, Output());
  if (!sinusoid.ok()) {
    return Invalid("sinusoidal_distances.", sinusoid.status().message());
  }
  ATTNBIAS_RETURN_IF_ERROR(CheckSinusoid(term, request));
  Summand summand = {.encoding = *std::move(sinusoid),
                     .descends = !term.symmetric,
                     .roundings = term.sinusoidal.dim + 2};
  ATTNBIAS_RETURN_IF_ERROR(Project("sinusoidal_distances.projection",
                                   term.projection, request, &summand));
  RelativeVectors vectors = {.distinct = kRelativePositions,
                             .symmetric = term.symmetric};
  if (term.clamp_len.has_value()) {
    vectors.distinct = {-*term.clamp_len, *term.clamp_len + 1};
  }
  if (Range hull = HullOf(request); hull.size() > 0) {
    hull = {vectors.Nearest(hull.begin), vectors.Nearest(hull.end - 1) + 1};
    const Range distances = DistancesIn(hull);
    if (distances.end - 1 > kMaxPosition) {
      return Invalid("query_offset: got ", *request.query_offset,
                     ", which makes distances of more than 2^40; want smaller "
                     "ones, or a clamp_len");
    }
    const Range used = term.symmetric ? distances : hull;
    vectors.first = used.begin;
    summand.first = term.symmetric ? used.begin : -used.begin;
    summand.count = used.size();
  }
  summand.stretches = vectors.For(request);
  return LogitsTerm{{std::move(summand)}};
}

const TermRegistration kSinusoidalDistances(&DescribeSinusoidalDistances);

}  // namespace
}  // namespace attnbias
