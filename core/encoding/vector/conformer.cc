// SPDX-License-Identifier: Apache-2.0
// The relative positions of Conformer, as ESPnet and wav2vec 2.0 have them: an
// interleaved sinusoid of the signed distance from query to key.
#include "core/encoding/spec/conformer.h"

#include <memory>

#include "core/base/status_macros.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/vector/relative_sinusoid.h"

namespace attnbias {
namespace {

absl::StatusOr<Encoding> DescribeConformer(const ConformerSpec& spec) {
  return RelativeSinusoid({.dim = spec.dim,
                           .base = spec.base,
                           .layout = SinusoidalLayout::kInterleaved},
                          DistanceRule());
}

const EncodingRegistration kConformer(&DescribeConformer);

}  // namespace
}  // namespace attnbias
