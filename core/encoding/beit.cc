// SPDX-License-Identifier: Apache-2.0
// BEiT's relative position bias (Bao et al. 2021): Swin's, and three learned
// numbers a head for a class token.
#include <memory>
#include <optional>

#include "core/base/status_macros.h"
#include "core/encoding/checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/swin_table.h"

namespace attnbias {
namespace {

// At the table's end: class to tokens, tokens to class, class to itself.
constexpr int64_t kBorderRows = 3;

class BeitEncoding final : public Encoding {
 public:
  BeitEncoding(const BeitSpec& spec, const Output& output)
      : spec_(spec),
        output_(output),
        table_({spec.window_height, spec.window_width},
               has_indices() ? std::nullopt : spec.table, output.scale) {}

  std::string_view name() const override { return "beit"; }
  Structure structure() const override { return Structure::kBlockToeplitz2D; }
  int64_t lanes() const override { return has_indices() ? 1 : spec_.num_heads; }
  int64_t width() const override { return 1; }
  Range domain() const override { return table_.coordinates(); }
  bool has_indices() const override {
    return output_.values == Values::kBuckets;
  }
  Grid grid() const override { return table_.grid(); }
  bool has_border() const override { return true; }
  void WriteBorder(DataType type, Range lanes, std::byte* out) const override {
    for (int64_t lane = lanes.begin; lane < lanes.end; ++lane) {
      for (int64_t place = 0; place < kBorderRows; ++place) {
        table_.Write(domain().end + place, lane, type, out);
        out += SizeOf(type);
      }
    }
  }

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
  const BeitSpec spec_;
  const Output output_;
  const SwinTable table_;
};

absl::Status CheckTable(const BeitSpec& spec) {
  const int64_t rows =
      (2 * spec.window_height - 1) * (2 * spec.window_width - 1) + kBorderRows;
  if (!spec.table.has_value()) {
    return Invalid("beit.table: not set, want a table of [", rows, " rows, ",
                   spec.num_heads, " heads], or values BUCKETS");
  }
  return CheckShape("beit.table", *spec.table,
                    {{rows, "displacements (2 Wh - 1)(2 Ww - 1) + 3"},
                     {spec.num_heads, "heads"}});
}

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const BeitSpec& spec,
                                         const Output& output) {
  ATTNBIAS_RETURN_IF_ERROR(
      CheckWindowSide("beit.window_height", spec.window_height));
  ATTNBIAS_RETURN_IF_ERROR(
      CheckWindowSide("beit.window_width", spec.window_width));
  ATTNBIAS_RETURN_IF_ERROR(CheckScale(output));
  if (output.values != Values::kBuckets) {
    ATTNBIAS_RETURN_IF_ERROR(CheckNumHeads("beit.num_heads", spec.num_heads));
    ATTNBIAS_RETURN_IF_ERROR(CheckTable(spec));
  } else {
    ATTNBIAS_RETURN_IF_ERROR(CheckUnscaled(output));
  }
  return std::make_shared<const BeitEncoding>(spec, output);
}

}  // namespace attnbias
