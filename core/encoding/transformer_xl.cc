// SPDX-License-Identifier: Apache-2.0
// Transformer-XL's R (Dai et al. 2019): a sinusoid of the distance back from
// query to key.
#include <memory>

#include "core/base/status_macros.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/relative_sinusoid.h"

namespace attnbias {
namespace {

class TransformerXlEncoding final : public RelativeSinusoid {
 public:
  using RelativeSinusoid::RelativeSinusoid;

  std::string_view name() const override { return "transformer_xl"; }
  void WriteIdentity(CanonicalWriter& writer) const override {
    WriteTable(writer);
    writer.Integer(3, rule().clamp_len.value_or(0));
    WriteScale(writer);
  }
};

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const TransformerXlSpec& spec,
                                         const Output& output) {
  const SinusoidalSpec table = {.dim = spec.dim,
                                .base = spec.base,
                                .layout = SinusoidalLayout::kConcatenated};
  ATTNBIAS_RETURN_IF_ERROR(
      CheckRelativeSinusoid("transformer_xl", table, output));
  ATTNBIAS_RETURN_IF_ERROR(CheckClampLen("transformer_xl", spec.clamp_len));
  const DistanceRule rule = {.zero_right = true, .clamp_len = spec.clamp_len};
  return std::make_shared<const TransformerXlEncoding>(table, rule, output);
}

}  // namespace attnbias
