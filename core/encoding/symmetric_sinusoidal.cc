// SPDX-License-Identifier: Apache-2.0
// A sinusoid of the distance between query and key, blind to direction.
#include <memory>

#include "core/base/status_macros.h"
#include "core/encoding/checks.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/relative_sinusoid.h"

namespace attnbias {
namespace {

class SymmetricSinusoidalEncoding final : public RelativeSinusoid {
 public:
  SymmetricSinusoidalEncoding(const SinusoidalSpec& table, const Output& output)
      : RelativeSinusoid(table, {.symmetric = true}, output),
        layout_(table.layout) {}

  std::string_view name() const override { return "symmetric_sinusoidal"; }
  void WriteIdentity(CanonicalWriter& writer) const override {
    WriteTable(writer);
    writer.Integer(3, static_cast<int64_t>(layout_),
                   static_cast<int64_t>(SinusoidalLayout::kInterleaved));
    WriteScale(writer);
  }

 private:
  const SinusoidalLayout layout_;
};

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const SymmetricSinusoidalSpec& spec,
                                         const Output& output) {
  const SinusoidalSpec table = {
      .dim = spec.dim, .base = spec.base, .layout = spec.layout};
  ATTNBIAS_RETURN_IF_ERROR(
      CheckRelativeSinusoid("symmetric_sinusoidal", table, output));
  if (spec.layout == SinusoidalLayout::kTensor2Tensor) {
    return Invalid(
        "symmetric_sinusoidal.layout: got TENSOR2TENSOR, want INTERLEAVED or "
        "CONCATENATED");
  }
  return std::make_shared<const SymmetricSinusoidalEncoding>(table, output);
}

}  // namespace attnbias
