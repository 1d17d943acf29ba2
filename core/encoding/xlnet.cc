// SPDX-License-Identifier: Apache-2.0
// XLNet's relative positions (Yang et al. 2019): a sinusoid of the signed
// distance from query to key.
#include <memory>

#include "core/base/status_macros.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/relative_sinusoid.h"

namespace attnbias {
namespace {

class XlnetEncoding final : public RelativeSinusoid {
 public:
  using RelativeSinusoid::RelativeSinusoid;

  std::string_view name() const override { return "xlnet"; }
  void WriteIdentity(CanonicalWriter& writer) const override {
    const auto attn_type = rule().zero_right ? XlnetAttention::kUnidirectional
                                             : XlnetAttention::kBidirectional;
    WriteTable(writer);
    writer.Integer(3, rule().clamp_len.value_or(0));
    writer.Integer(4, static_cast<int64_t>(attn_type),
                   static_cast<int64_t>(XlnetAttention::kBidirectional));
    WriteScale(writer);
  }
};

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const XlnetSpec& spec,
                                         const Output& output) {
  const SinusoidalSpec table = {.dim = spec.dim,
                                .base = spec.base,
                                .layout = SinusoidalLayout::kConcatenated};
  ATTNBIAS_RETURN_IF_ERROR(CheckRelativeSinusoid("xlnet", table, output));
  ATTNBIAS_RETURN_IF_ERROR(CheckClampLen("xlnet", spec.clamp_len));
  const DistanceRule rule = {
      .zero_right = spec.attn_type == XlnetAttention::kUnidirectional,
      .clamp_len = spec.clamp_len};
  return std::make_shared<const XlnetEncoding>(table, rule, output);
}

}  // namespace attnbias
