// SPDX-License-Identifier: Apache-2.0
// The relative positions of Conformer, as ESPnet and wav2vec 2.0 have them: an
// interleaved sinusoid of the signed distance from query to key.
#include <memory>

#include "core/base/status_macros.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/relative_sinusoid.h"

namespace attnbias {
namespace {

class ConformerEncoding final : public RelativeSinusoid {
 public:
  using RelativeSinusoid::RelativeSinusoid;

  std::string_view name() const override { return "conformer"; }
  void WriteIdentity(CanonicalWriter& writer) const override {
    WriteTable(writer);
    WriteScale(writer);
  }
};

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const ConformerSpec& spec,
                                         const Output& output) {
  const SinusoidalSpec table = {.dim = spec.dim,
                                .base = spec.base,
                                .layout = SinusoidalLayout::kInterleaved};
  ATTNBIAS_RETURN_IF_ERROR(CheckRelativeSinusoid("conformer", table, output));
  return std::make_shared<const ConformerEncoding>(table, DistanceRule(),
                                                   output);
}

}  // namespace attnbias
