// SPDX-License-Identifier: Apache-2.0
// Swin's relative position bias (Liu et al. 2021): one learned number for each
// displacement inside a window, and head.
#include <memory>
#include <optional>

#include "core/base/status_macros.h"
#include "core/encoding/checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/swin_table.h"

namespace attnbias {
namespace {

class SwinEncoding final : public Encoding {
 public:
  SwinEncoding(const SwinSpec& spec, const Output& output)
      : spec_(spec),
        output_(output),
        table_({spec.window_height, spec.window_width},
               has_indices() ? std::nullopt : spec.table, output.scale) {}

  std::string_view name() const override { return "swin"; }
  Structure structure() const override { return Structure::kBlockToeplitz2D; }
  int64_t lanes() const override { return has_indices() ? 1 : spec_.num_heads; }
  int64_t width() const override { return 1; }
  Range domain() const override { return table_.coordinates(); }
  bool has_indices() const override {
    return output_.values == Values::kBuckets;
  }
  Grid grid() const override { return table_.grid(); }

  void WriteIdentity(CanonicalWriter& writer) const override {
    writer.Integer(1, spec_.window_height);
    writer.Integer(2, spec_.window_width);
    if (!has_indices()) writer.Bytes(4, spec_.table->sha256());
    WriteValues(has_indices(), writer);
    writer.Real(101, output_.scale, 1);
  }

  std::unique_ptr<const Evaluator> Prepare(
      DataType type, const KernelSet& /*kernels*/) const override {
    return std::make_unique<SwinTableEvaluator>(table_, type);
  }

 private:
  const SwinSpec spec_;
  const Output output_;
  const SwinTable table_;
};

absl::Status CheckTable(const SwinSpec& spec) {
  const int64_t rows =
      (2 * spec.window_height - 1) * (2 * spec.window_width - 1);
  if (!spec.table.has_value()) {
    return Invalid("swin.table: not set, want a table of [", rows, " rows, ",
                   spec.num_heads, " heads], or values BUCKETS");
  }
  return CheckShape("swin.table", *spec.table,
                    {{rows, "displacements (2 Wh - 1)(2 Ww - 1)"},
                     {spec.num_heads, "heads"}});
}

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const SwinSpec& spec,
                                         const Output& output) {
  ATTNBIAS_RETURN_IF_ERROR(
      CheckWindowSide("swin.window_height", spec.window_height));
  ATTNBIAS_RETURN_IF_ERROR(
      CheckWindowSide("swin.window_width", spec.window_width));
  ATTNBIAS_RETURN_IF_ERROR(CheckScale(output));
  if (output.values != Values::kBuckets) {
    ATTNBIAS_RETURN_IF_ERROR(CheckNumHeads("swin.num_heads", spec.num_heads));
    ATTNBIAS_RETURN_IF_ERROR(CheckTable(spec));
  } else {
    ATTNBIAS_RETURN_IF_ERROR(CheckUnscaled(output));
  }
  return std::make_shared<const SwinEncoding>(spec, output);
}

}  // namespace attnbias
